// Stored matrices with padded rows, products of them in register blocks, and sums over their entries.

struct Matrix {
    double* data;
    std::int64_t stride;
    double* row(int i) const { return data + i * stride; }
};

// Memory of one worker: aligned arrays of doubles, taken one after the other and all given back together.
class Arena {
  public:
    explicit Arena(std::size_t count) : memory_(static_cast<double*>(std::aligned_alloc(64, pad_bytes(count)))) {
        if (memory_ == nullptr) throw std::bad_alloc();
    }
    ~Arena() { std::free(memory_); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    double* take(std::size_t count) {
        double* start = memory_ + used_;
        used_ += (count + PADDING - 1) / PADDING * PADDING;
        return start;
    }
    Matrix take_matrix(int rows, int cols) { return {take(std::size_t(rows) * pad(cols)), pad(cols)}; }
    void reset() { used_ = 0; }

  private:
    static std::size_t pad_bytes(std::size_t count) { return (8 * count + 63) / 64 * 64 + 64; }
    double* memory_;
    std::size_t used_ = 0;
};

// R rows and V vectors of the product left·right, whose inner dimension is `inner`; right and product have padded rows.
// A product with one row is a sum of rows of `right`: it is split into four sums, so that additions need not wait.
template <int R, int V>
UGW_INLINE void product_block(
    const double* left, std::int64_t left_stride, const double* right, std::int64_t right_stride, int inner, double* out,
    std::int64_t out_stride
) {
    constexpr int SPLIT = R * V >= 8 ? 1 : (R * V >= 4 ? 2 : 4);
    Vec sums[SPLIT][R][V] = {};
    int k = 0;
    for (; k + SPLIT <= inner; k += SPLIT) {
#pragma GCC unroll 4
        for (int part = 0; part < SPLIT; ++part) {
            Vec values[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) values[v] = load(right + (k + part) * right_stride + v * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const Vec factor = broadcast(left[r * left_stride + k + part]);
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) sums[part][r][v] += factor * values[v];
            }
        }
    }
    for (; k < inner; ++k) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            const Vec factor = broadcast(left[r * left_stride + k]);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) sums[0][r][v] += factor * load(right + k * right_stride + v * LANES);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
            Vec sum = sums[0][r][v];
#pragma GCC unroll 4
            for (int part = 1; part < SPLIT; ++part) sum += sums[part][r][v];
            store(out + r * out_stride + v * LANES, sum);
        }
    }
}

template <int R>
UGW_INLINE void product_rows(
    const double* left, std::int64_t left_stride, const double* right, std::int64_t right_stride, int inner, double* out,
    std::int64_t out_stride, int n_vectors
) {
    int v = 0;
    for (; v + 3 <= n_vectors; v += 3)
        product_block<R, 3>(left, left_stride, right + v * LANES, right_stride, inner, out + v * LANES, out_stride);
    if (v + 2 <= n_vectors) {
        product_block<R, 2>(left, left_stride, right + v * LANES, right_stride, inner, out + v * LANES, out_stride);
        v += 2;
    }
    if (v < n_vectors)
        product_block<R, 1>(left, left_stride, right + v * LANES, right_stride, inner, out + v * LANES, out_stride);
}

// out = left·right: left has `rows` rows of `inner` entries, right and out have rows padded to `cols`.
static void multiply(Matrix left, int rows, int inner, Matrix right, int cols, Matrix out) {
    // Registers of 64 bytes come in 32, others in 16: the sums of a block and one row of `right` must fit.
    constexpr int ROWS = UGW_VECTOR_BYTES == 64 ? 8 : 4;
    const int n_vectors = pad(cols) / LANES;
    int i = 0;
    for (; i + ROWS <= rows; i += ROWS)
        product_rows<ROWS>(
            left.row(i), left.stride, right.data, right.stride, inner, out.row(i), out.stride, n_vectors
        );
    for (; i + 2 <= rows; i += 2)
        product_rows<2>(left.row(i), left.stride, right.data, right.stride, inner, out.row(i), out.stride, n_vectors);
    if (i < rows)
        product_rows<1>(left.row(i), left.stride, right.data, right.stride, inner, out.row(i), out.stride, n_vectors);
}

// out_j = Σ_i factors_i·matrix_ij for the padded columns j.
static void weighted_row_sum(const double* factors, Matrix matrix, int rows, int cols, double* out) {
    product_rows<1>(factors, 0, matrix.data, matrix.stride, rows, out, 0, pad(cols) / LANES);
}

// out_j = Σ_i factors_i·matrix_ij² for the padded columns j; two sums, so that additions need not wait.
static void weighted_square_sum(const double* factors, Matrix matrix, int rows, int cols, double* out) {
    for (int j = 0; j < pad(cols); j += LANES) {
        Vec even = {}, odd = {};
        int i = 0;
        for (; i + 2 <= rows; i += 2) {
            const Vec first = load(matrix.row(i) + j), second = load(matrix.row(i + 1) + j);
            even += (factors[i] * first) * first;
            odd += (factors[i + 1] * second) * second;
        }
        if (i < rows) even += (factors[i] * load(matrix.row(i) + j)) * load(matrix.row(i) + j);
        store(out + j, even + odd);
    }
}

// Σ values_j over the padded entries.
static double sum(const double* values, int count) {
    Vec total = {};
    for (int j = 0; j < pad(count); j += LANES) total += load(values + j);
    return sum_lanes(total);
}

// Row and column sums of a plan.
static void sum_sides(Matrix plan, int n, int m, double* p1, double* p2) {
    std::fill(p1, p1 + pad(n), 0.0);
    std::fill(p2, p2 + pad(m), 0.0);
    for (int i = 0; i < n; ++i) {
        Vec total = {};
        for (int j = 0; j < pad(m); j += LANES) {
            const Vec p = load(plan.row(i) + j);
            total += p;
            store(p2 + j, load(p2 + j) + p);
        }
        p1[i] = sum_lanes(total);
    }
}

// Σ u_ij v_ij.
static double dot(Matrix u, Matrix v, int rows, int cols) {
    Vec total = {};
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < pad(cols); j += LANES) total += load(u.row(i) + j) * load(v.row(i) + j);
    return sum_lanes(total);
}

// Σ |u_ij − v_ij|.
static double l1_distance(Matrix u, Matrix v, int rows, int cols) {
    Vec total = {};
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < pad(cols); j += LANES) total += abs(load(u.row(i) + j) - load(v.row(i) + j));
    return sum_lanes(total);
}

// target = source, padding included.
static void copy(Matrix source, int rows, int cols, Matrix target) {
    for (int i = 0; i < rows; ++i) std::memcpy(target.row(i), source.row(i), sizeof(double) * pad(cols));
}

// target = sourceᵀ, with zeros in the padding. source: (rows, cols).
static void transpose(Matrix source, int rows, int cols, Matrix target) {
    constexpr int BLOCK = 8;  // a block of both matrices stays in the L1 cache
    for (int i0 = 0; i0 < pad(rows); i0 += BLOCK)
        for (int j0 = 0; j0 < cols; j0 += BLOCK)
            for (int j = j0; j < std::min(j0 + BLOCK, cols); ++j)
                for (int i = i0; i < i0 + BLOCK; ++i) target.row(j)[i] = i < rows ? source.row(i)[j] : 0.0;
}

// log Σ exp(values_j) over the padded entries, −inf if all are −inf.
static double logsumexp(const double* values, int count) {
    Vec largest = broadcast(-INFINITE);
    for (int j = 0; j < pad(count); j += LANES) largest = max(load(values + j), largest);
    const double shift = finite_or_zero(max_lanes(largest));
    Vec total = {};
    for (int j = 0; j < pad(count); j += LANES) total += exp(load(values + j) - shift);
    return shift + std::log(sum_lanes(total));
}

// out = exp(values) / Σ exp(values) over the padded entries; NaN if all are −inf.
static void softmax(const double* values, int count, double* out) {
    const double log_total = logsumexp(values, count);
    const double shift = std::isfinite(log_total) ? log_total : NOT_A_NUMBER;
    for (int j = 0; j < pad(count); j += LANES) store(out + j, exp(load(values + j) - shift));
}
