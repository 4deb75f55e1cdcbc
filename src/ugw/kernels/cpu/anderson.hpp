// Anderson extrapolation of the local cost, the counterpart of kernels/anderson.py and solvers/extrapolation.py.

struct Extrapolation {
    double factors[3];  // of the two differences of outputs and of the last residual
    bool is_extrapolated, is_long_step;
};

// Covariances of the differences of the last two inputs (0, 1), of the last two residuals (2, 3), and of the last
// residual (4) under the weights row_weights⊗b. inputs, outputs: of three steps, oldest first.
static void anderson_covariances(const Item& item, const Matrix inputs[3], const Matrix outputs[3], double gram[5][5]) {
    Vec mean[5] = {}, products[5][5] = {};
    for (int i = 0; i < item.n; ++i) {
        const double weight = item.row_weights[i];
        if (weight == 0.0) continue;
        for (int j = 0; j < pad(item.m); j += LANES) {
            Vec x[3], y[3];
            for (int k = 0; k < 3; ++k) x[k] = load(inputs[k].row(i) + j), y[k] = load(outputs[k].row(i) + j);
            const Vec first = x[1] - x[0], last = x[2] - x[1];
            // Subtract before any product: where the map contracts slowly, residual differences are small.
            const Vec values[5] = {first, last, (y[1] - y[0]) - first, (y[2] - y[1]) - last, y[2] - x[2]};
            const Vec product_weight = weight * load(item.b + j);
#pragma GCC unroll 5
            for (int k = 0; k < 5; ++k) {
                const Vec weighted = product_weight * values[k];
                mean[k] += weighted;
#pragma GCC unroll 5
                for (int l = 0; l <= k; ++l) products[k][l] += weighted * values[l];
            }
        }
    }
    double means[5];
    for (int k = 0; k < 5; ++k) means[k] = sum_lanes(mean[k]);
    for (int k = 0; k < 5; ++k)
        for (int l = 0; l <= k; ++l) gram[k][l] = gram[l][k] = sum_lanes(products[k][l]) - means[k] * means[l];
}

// The largest eigenvalue of the pencil (k, g), both symmetric 2×2: the growth of the map on the last differences.
static double largest_growth(double g00, double g01, double g11, double k00, double k01, double k11, double independence) {
    const double first = std::sqrt(g00), last = std::sqrt(g11);
    const double s00 = 1.0 / (first * first), s01 = 1.0 / (first * last), s11 = 1.0 / (last * last);
    double cosine = g01 * s01;
    cosine = cosine < -1.0 ? -1.0 : (cosine > 1.0 ? 1.0 : cosine);
    k00 *= s00, k01 *= s01, k11 *= s11;
    const double half = 0.5 * (k00 + k11);
    const double plus = 1.0 + cosine < independence ? independence : 1.0 + cosine;
    const double minus = 1.0 - cosine < independence ? independence : 1.0 - cosine;
    const double upper = (half + k01) / plus, lower = (half - k01) / minus;
    if ((plus < minus ? plus : minus) <= 2.0 * independence) return cosine > 0.0 ? upper : lower;
    const double mixed = 0.5 * (k00 - k11) / std::sqrt(plus * minus);
    return 0.5 * (upper + lower) + std::sqrt(0.25 * (upper - lower) * (upper - lower) + mixed * mixed);
}

// The coefficients of the two differences, rounded to the grain; not finite if there are none.
static void least_squares_coefficients(const Config& config, const double gram[5][5], double coefficients[2]) {
    const double damping = 1.0 + config.least_squares_damping;
    const double r00 = gram[2][2], r01 = gram[2][3], r11 = gram[3][3], side0 = -gram[2][4], side1 = -gram[3][4];
    const double d0 = r00 * damping, d1 = r11 * damping, determinant = d0 * d1 - r01 * r01;
    double first = (d1 * side0 - r01 * side1) / determinant, last = (d0 * side1 - r01 * side0) / determinant;
    if (!(std::fabs(first) + std::fabs(last) <= config.max_two_coefficients)) {
        const bool is_forward = side1 > 0.0 && r11 > 0.0;
        first = 0.0;
        last = is_forward ? std::min(side1 / r11, config.max_one_coefficient) : NOT_A_NUMBER;
    }
    const double grain = config.coefficient_grain;
    coefficients[0] = grain * std::floor(first / grain + 0.5);
    coefficients[1] = grain * std::floor(last / grain + 0.5);
}

// Choose Anderson extrapolation, a longer step or neither. relative_change: last change of the plan in units of its
// tolerance; was_rejected: was a longer step rejected before?
static Extrapolation choose_extrapolation(
    const Config& config, const double gram[5][5], double relative_change, bool was_rejected
) {
    double coefficients[2];
    least_squares_coefficients(config, gram, coefficients);
    const double k00 = gram[0][0] + gram[0][2], k11 = gram[1][1] + gram[1][3];
    const double k01 = 0.5 * ((gram[0][1] + gram[0][3]) + (gram[1][0] + gram[1][2]));
    const double growth =
        largest_growth(gram[0][0], gram[0][1], gram[1][1], k00, k01, k11, config.min_independence);
    const bool expands = growth >= 1.0;
    // The previous residual is the last one minus the last residual difference.
    const double previous_square = gram[4][4] + gram[3][3] - 2.0 * gram[3][4];
    Extrapolation chosen;
    chosen.is_long_step = expands && relative_change >= config.min_overrelaxed_change &&
                          (!was_rejected || gram[4][4] >= previous_square);
    const bool is_mixed = !expands && std::isfinite(coefficients[0] + coefficients[1]);
    chosen.is_extrapolated = chosen.is_long_step || is_mixed;
    chosen.factors[0] = is_mixed ? coefficients[0] : 0.0;
    chosen.factors[1] = is_mixed ? coefficients[1] : 0.0;
    chosen.factors[2] = chosen.is_long_step ? config.overrelaxation : 0.0;
    return chosen;
}

// target = y2 + c0 (y1 − y0) + c1 (y2 − y1) + c2 (y2 − last_input), y: outputs of the last three steps.
static void extrapolate(
    const Item& item, Matrix last_input, const Matrix outputs[3], const double factors[3], Matrix target
) {
    for (int i = 0; i < item.n; ++i)
        for (int j = 0; j < pad(item.m); j += LANES) {
            const Vec y0 = load(outputs[0].row(i) + j), y1 = load(outputs[1].row(i) + j);
            const Vec y2 = load(outputs[2].row(i) + j), x2 = load(last_input.row(i) + j);
            store(target.row(i) + j, y2 + factors[0] * (y1 - y0) + factors[1] * (y2 - y1) + factors[2] * (y2 - x2));
        }
}
