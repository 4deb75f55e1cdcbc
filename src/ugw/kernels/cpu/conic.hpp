// The state of a plan of a conic problem, its improvement and its local cost, the counterpart of problems/cgw.py.

// What products with the kernel need beside the plan and the product.
struct ProductMemory {
    Matrix half, transposed;

    void take(int n, int m, std::int64_t rank, Arena& arena) {
        half = arena.take_matrix(pad(n), static_cast<int>(rank) * pad(m));
        transposed = arena.take_matrix(m, n);
    }
    static std::size_t size(int n, int m, std::int64_t rank) {
        return std::size_t(rank) * pad(n) * pad(m) + std::size_t(m) * pad(n);
    }
};

struct ConicMemory {
    Matrix cost, lift, improved;
    ProductMemory product;
    double *p1, *p2, *factor_a, *factor_b;

    void take(int n, int m, std::int64_t rank, Arena& arena) {
        for (Matrix* matrix : {&cost, &lift, &improved}) *matrix = arena.take_matrix(n, m);
        product.take(n, m, rank, arena);
        for (double** vector : {&p1, &factor_a}) *vector = arena.take(pad(n));
        for (double** vector : {&p2, &factor_b}) *vector = arena.take(pad(m));
    }
    static std::size_t size(int n, int m, std::int64_t rank) {
        return 3 * std::size_t(n) * pad(m) + ProductMemory::size(n, m, rank) + 2 * std::size_t(pad(n) + pad(m));
    }
};

// factor = (weight/p)^share, 1 where that is 0, infinite or NaN: at points without weight or mass.
static void lift_factors(const double* log_weights, const double* p, double share, int count, double* factor) {
    for (int i = 0; i < pad(count); i += LANES)
        store(factor + i, exp(finite_or_zero(share * (load(log_weights + i) - log(load(p + i))))));
}

// memory.lift = p (a/p1)^(rho1/R) (b/p2)^(rho2/R), the lift w(p) of a plan p; returns <k, w(p)>.
static double lift_plan(const Item& item, Matrix plan, Matrix k, ConicMemory& memory) {
    const double share = item.conic.parameters->rho_share;
    sum_sides(plan, item.n, item.m, memory.p1, memory.p2);
    lift_factors(item.log_a, memory.p1, share, item.n, memory.factor_a);
    lift_factors(item.log_b, memory.p2, 1.0 - share, item.m, memory.factor_b);
    Vec overlap = {};
    for (int i = 0; i < item.n; ++i)
        for (int j = 0; j < pad(item.m); j += LANES) {
            const Vec w = load(plan.row(i) + j) * memory.factor_a[i] * load(memory.factor_b + j);
            store(memory.lift.row(i) + j, w);
            overlap += w * load(k.row(i) + j);
        }
    return sum_lanes(overlap);
}

// target = k∘w(p) scaled to mass 1, or p if that is 0; returns <k, w(target)> and leaves w(target) in memory.lift.
static double improve_plan(const Item& item, Matrix plan, Matrix k, ConicMemory& memory, Matrix target) {
    const double mass = lift_plan(item, plan, k, memory), scale = 1.0 / mass;
    for (int i = 0; i < item.n; ++i)
        for (int j = 0; j < pad(item.m); j += LANES) {
            const Vec improved = load(k.row(i) + j) * load(memory.lift.row(i) + j) * scale;
            store(target.row(i) + j, mass > 0.0 ? improved : load(plan.row(i) + j));
        }
    return lift_plan(item, target, k, memory);
}

// The large entries of a plan or of a difference of plans, column by column: those of column j are starts[j], ...,
// starts[j + 1] − 1.
struct LargeEntries {
    std::vector<int> starts, rows;
    std::vector<double> values;
};

// The entries, of any sign, that are not lost to rounding when a plan is summed; none of them if they are many.
static LargeEntries large_entries(Matrix plan, int n, int m) {
    constexpr double LOST_SHARE = 1e-18;  // of the largest entry: together far below its rounding error
    constexpr int MIN_SPARSITY = 8;       // with more entries than this fraction, dense products are as fast
    Vec largest = {};
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < pad(m); j += LANES) largest = max(abs(load(plan.row(i) + j)), largest);
    const double threshold = LOST_SHARE * max_lanes(largest);
    // NaN counts as large, so that products show it.
    const auto is_large = [threshold](double entry) { return !(std::abs(entry) <= threshold); };
    LargeEntries entries;
    entries.starts.assign(m + 1, 0);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < m; ++j) entries.starts[j + 1] += is_large(plan.row(i)[j]);
    for (int j = 0; j < m; ++j) entries.starts[j + 1] += entries.starts[j];
    const int count = entries.starts[m];
    if (count == 0 || count > n * m / MIN_SPARSITY) return {};
    entries.rows.resize(count);
    entries.values.resize(count);
    std::vector<int> next(entries.starts.begin(), entries.starts.end() - 1);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < m; ++j)
            if (is_large(plan.row(i)[j])) {
                const int position = next[j]++;
                entries.rows[position] = i;
                entries.values[position] = plan.row(i)[j];
            }
    return entries;
}

// target = Σ of the rows `rows` of a matrix, each times its value, for `count` of them.
static void sum_rows(Matrix matrix, int cols, const int* rows, const double* values, int count, double* target) {
    for (int j = 0; j < pad(cols); j += LANES) {
        Vec total = {};
        for (int k = 0; k < count; ++k) total += values[k] * load(matrix.row(rows[k]) + j);
        store(target + j, total);
    }
}

// product = Σ_r left_r·plan·right_r for a plan of few large entries: its columns are multiplied with the symmetric left_r
// entry by entry, which gives the rows of the transposed half.
static void multiply_sparse(
    const ConicKernel& kernel, int n, int m, const LargeEntries& entries, const ProductMemory& memory, Matrix product
) {
    const int rank = static_cast<int>(kernel.rank), cols = pad(m);
    const Matrix half = {memory.half.data, pad(n)};
    for (int r = 0; r < rank; ++r) {
        const Matrix left = {kernel.left + std::int64_t(r) * n * pad(n), pad(n)};
        for (int j = 0; j < m; ++j) {
            const int start = entries.starts[j], count = entries.starts[j + 1] - start;
            sum_rows(left, n, entries.rows.data() + start, entries.values.data() + start, count, half.row(r * cols + j));
        }
        for (int j = m; j < cols; ++j) std::fill(half.row(r * cols + j), half.row(r * cols + j) + pad(n), 0.0);
    }
    multiply({kernel.right_rows, kernel.right_stride}, m, rank * cols, half, n, memory.transposed);
    transpose(memory.transposed, m, n, product);
}

// product = Σ_r left_r·plan·right_r, the distortion sum of a plan (n, m) with padded rows.
static void multiply_kernel(
    const ConicKernel& kernel, int n, int m, Matrix plan, const ProductMemory& memory, Matrix product
) {
    const int rank = static_cast<int>(kernel.rank), stride = pad(m);
    if (rank == 0) {
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < m; ++j)
                product.row(i)[j] = dot({kernel.left + (std::int64_t(i) * m + j) * n * stride, stride}, plan, n, m);
        return;
    }
    const LargeEntries entries = large_entries(plan, n, m);
    if (!entries.rows.empty()) {
        multiply_sparse(kernel, n, m, entries, memory, product);
        return;
    }
    const Matrix half = {memory.half.data, std::int64_t(rank) * stride};
    for (int r = 0; r < rank; ++r) {
        const Matrix left = {kernel.left + std::int64_t(r) * n * pad(n), pad(n)};
        multiply(left, n, n, plan, m, {half.data + std::int64_t(r) * stride, half.stride});
    }
    multiply(half, n, rank * stride, {kernel.right, stride}, m, product);
}

// k = max(G w, 0) with the conic kernel G, for the lift w in memory.lift; returns <w, k>.
static double apply_kernel(const Item& item, ConicMemory& memory, Matrix k) {
    multiply_kernel(item.conic.kernel, item.n, item.m, memory.lift, memory.product, k);
    Vec overlap = {};
    for (int i = 0; i < item.n; ++i)
        for (int j = 0; j < pad(item.m); j += LANES) {
            const Vec entry = max(load(k.row(i) + j), Vec{});
            store(k.row(i) + j, entry);
            overlap += entry * load(memory.lift.row(i) + j);
        }
    return sum_lanes(overlap);
}

// Take plans from a common counter until none is left, and write the product of each with the kernel.
static void multiply_plans(const ProductRun& run, std::atomic<std::int64_t>& next) {
    const int n = static_cast<int>(run.n), m = static_cast<int>(run.m);
    Arena arena(2 * std::size_t(n) * pad(m) + ProductMemory::size(n, m, run.kernel.rank) + 64 * PADDING);
    for (std::int64_t i = next++; i < run.batch; i = next++) {
        arena.reset();
        const Matrix plan = pack_matrix(run.plans, i, n, m, arena), product = arena.take_matrix(n, m);
        ProductMemory memory;
        memory.take(n, m, run.kernel.rank, arena);
        multiply_kernel(run.kernel, n, m, plan, memory, product);
        for (int row = 0; row < n; ++row)
            std::memcpy(run.products + (i * n + row) * m, product.row(row), sizeof(double) * m);
    }
}

// memory.cost = −2 log max(k', floor), the cost of the linear problem; k' is extrapolated from the local costs last_k and
// k. Returns the mean of memory.cost under the plan.
static double conic_cost(const Item& item, Matrix k, Matrix last_k, Matrix plan, ConicMemory& memory) {
    constexpr double EPSILON = std::numeric_limits<double>::epsilon(), TINY = std::numeric_limits<double>::min();
    const double factor = item.config->conic_extrapolation, min_share = item.config->min_extrapolated_share;
    Vec largest = {}, mean = {};
    for (int i = 0; i < item.n; ++i)
        for (int j = 0; j < pad(item.m); j += LANES) {
            const Vec entry = load(k.row(i) + j);
            const Vec extrapolated = max(entry + factor * (entry - load(last_k.row(i) + j)), min_share * entry);
            store(memory.cost.row(i) + j, extrapolated);
            largest = max(extrapolated, largest);
        }
    const Vec floor = broadcast(std::max(EPSILON * EPSILON * max_lanes(largest), TINY));
    for (int i = 0; i < item.n; ++i)
        for (int j = 0; j < pad(item.m); j += LANES) {
            const Vec cost = -2.0 * log(max(load(memory.cost.row(i) + j), floor));
            store(memory.cost.row(i) + j, cost);
            mean += cost * load(plan.row(i) + j);
        }
    return sum_lanes(mean);
}

// The estimate of the relative decrease of the value still to come, or the plan's change if less, see
// `LiftedState.change_since`. best_overlaps: after each of the last steps.
static double remaining_decrease(const Item& item, const double* best_overlaps, double change) {
    const Config& config = *item.config;
    const int half = static_cast<int>(config.decrease_window);
    const double first = best_overlaps[0], middle = best_overlaps[half], end = best_overlaps[2 * half];
    if (std::isnan(first)) return change;
    const double decrease = end - middle, previous = middle - first, max_rate = config.max_decrease_rate;
    const double measured = previous > 0.0 ? std::min(decrease / previous, max_rate) : max_rate;
    const double rate = std::max(measured, config.min_decrease_rate);
    const double max_overlap = item.conic.parameters->max_overlap;
    const double scale = std::max(max_overlap - end, config.min_relative_value * max_overlap);
    return std::min(decrease * rate / (1.0 - rate) / scale, change);
}

// The objective for an overlap <w, G w'>.
static double conic_objective(const Item& item, double overlap) {
    const ConicParameters& p = *item.conic.parameters;
    return p.unmatched_value - p.rho_total * std::exp(p.log_mass_factor) * overlap;
}
