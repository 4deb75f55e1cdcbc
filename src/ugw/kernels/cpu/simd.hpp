// Vectors of doubles (GCC and clang vector types) with exp and log that treat infinities and NaN as the C library does.
//
// Included once per instruction set, inside its namespace: UGW_VECTOR_BYTES is the size of its registers.

using Vec = double __attribute__((vector_size(UGW_VECTOR_BYTES)));
using Bits = std::int64_t __attribute__((vector_size(UGW_VECTOR_BYTES)));
using UnsignedBits = std::uint64_t __attribute__((vector_size(UGW_VECTOR_BYTES)));

constexpr int LANES = UGW_VECTOR_BYTES / 8;

UGW_INLINE Vec broadcast(double x) { return x - Vec{}; }

UGW_INLINE Vec load(const double* source) {
    Vec v;
    __builtin_memcpy(&v, source, sizeof v);
    return v;
}

UGW_INLINE void store(double* target, Vec v) { __builtin_memcpy(target, &v, sizeof v); }

// Like the comparisons below, NaN in the first operand is returned, in the second one ignored.
UGW_INLINE Vec max(Vec v, Vec w) { return v < w ? w : v; }
UGW_INLINE Vec min(Vec v, Vec w) { return v > w ? w : v; }
UGW_INLINE Vec abs(Vec v) { return (Vec)((Bits)v & INT64_MAX); }

// Both reduce halves, so that few operations wait for each other.
UGW_INLINE double sum_lanes(Vec v) {
    double lanes[LANES];
    store(lanes, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

UGW_INLINE double max_lanes(Vec v) {
    double lanes[LANES];
    store(lanes, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; ++lane)
            lanes[lane] = lanes[lane] < lanes[lane + half] ? lanes[lane + half] : lanes[lane];
    return lanes[0];
}

constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t ONE_BITS = 0x3ff0000000000000;

// 2^k from k + ROUND_TO_INTEGER: the low bits of the sum are the integer k, which moves to the exponent.
constexpr double ROUND_TO_INTEGER = 0x1.8p52;
UGW_INLINE Vec power_of_two(Vec shifted) { return (Vec)(((Bits)shifted << 52) + ONE_BITS); }

// exp(x) = 2^k exp(r), |r| <= log(2)/2, with a minimax polynomial (relative error 2e-17). The power is applied in two
// halves, so that results below the normal range are rounded once, and above it become infinite.
UGW_INLINE Vec exp(Vec x) {
    const Vec bounded = min(max(x, broadcast(-746.0)), broadcast(710.0));
    const Vec k = (bounded * 0x1.71547652b82fep0 + ROUND_TO_INTEGER) - ROUND_TO_INTEGER;
    const Vec r = (bounded - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    Vec q = broadcast(0x1.af38a9b0ec855p-26);
    q = q * r + 0x1.289185613a3d6p-22;
    q = q * r + 0x1.71de0dae63bb3p-19;
    q = q * r + 0x1.a019b90d2ae7ap-16;
    q = q * r + 0x1.a01a01a7c41d5p-13;
    q = q * r + 0x1.6c16c1788bd90p-10;
    q = q * r + 0x1.11111111109b3p-7;
    q = q * r + 0x1.5555555553d63p-5;
    q = q * r + 0x1.5555555555556p-3;
    q = q * r + 0x1.0000000000001p-1;
    const Vec value = (q * r) * r + r + 1.0;
    const Vec shifted_half = k * 0.5 + ROUND_TO_INTEGER;
    const Vec shifted_rest = (k - (shifted_half - ROUND_TO_INTEGER)) + ROUND_TO_INTEGER;
    return (value * power_of_two(shifted_half)) * power_of_two(shifted_rest);
}

// log(x) = e log(2) + log(1 + f), 1 + f in [sqrt(1/2), sqrt(2)], with the polynomial of the C library fdlibm.
UGW_INLINE Vec log(Vec x) {
    constexpr double TINY = std::numeric_limits<double>::min();
    const Vec scaled = x < TINY ? x * 0x1p54 : x;  // so that numbers below the normal range have an exponent
    const Bits bits = (Bits)scaled;
    Vec mantissa = (Vec)((bits & 0x000fffffffffffff) | ONE_BITS);
    Vec e = (Vec)((Bits)((UnsignedBits)bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023.0);
    e = x < TINY ? e - 54.0 : e;
    const Bits is_upper = mantissa > 1.4142135623730951;
    mantissa = is_upper ? mantissa * 0.5 : mantissa;
    e = is_upper ? e + 1.0 : e;
    const Vec f = mantissa - 1.0;
    const Vec s = f / (f + 2.0);
    const Vec z = s * s;
    Vec r = broadcast(1.479819860511658591e-01);
    r = r * z + 1.531383769920937332e-01;
    r = r * z + 1.818357216161805012e-01;
    r = r * z + 2.222219843214978396e-01;
    r = r * z + 2.857142874366239149e-01;
    r = r * z + 3.999999999940941908e-01;
    r = r * z + 6.666666666666735130e-01;
    r = r * z;
    const Vec half_square = 0.5 * f * f;
    const Vec value =
        e * 6.93147180369123816490e-01 - ((half_square - (s * (half_square + r) + e * 1.90821492927058770002e-10)) - f);
    const Vec of_others = x == 0.0 ? broadcast(-INFINITE) : (x > 0.0 ? x : broadcast(NOT_A_NUMBER));
    return ((x > 0.0) & (x < INFINITE)) ? value : of_others;
}

// log(1 + x), accurate near 0: the rounding error of 1 + x is corrected.
UGW_INLINE Vec log1p(Vec x) {
    const Vec u = x + 1.0;
    const Vec value = log(u) - ((u - 1.0) - x) / u;
    return ((u > 0.0) & (u < INFINITE)) ? value : log(u);
}

// Infinities and NaN as 0.
UGW_INLINE Vec finite_or_zero(Vec v) { return abs(v) < INFINITE ? v : Vec{}; }
UGW_INLINE double finite_or_zero(double v) { return std::isfinite(v) ? v : 0.0; }

// Infinities as 0, NaN as it is.
UGW_INLINE Vec infinite_as_zero(Vec v) { return abs(v) == INFINITE ? Vec{} : v; }
