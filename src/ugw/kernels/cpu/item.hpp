// The additional fields of an item of a conic problem.
struct ConicItem {
    const ConicParameters* parameters;
    ConicKernel kernel;
    double *overlap, *last_overlap, *best_overlaps;  // as in `LiftedState`
    Matrix best_plan;
};

// One item of a batch: its problem in padded arrays, and the addresses of its state.
struct Item {
    const Config* config;
    const Parameters* parameters;
    int n, m;
    Matrix dx, dy;                     // (n, n), (m, m)
    Matrix cost;                       // (n, m), the linear cost M; data is null if there is none
    const double *log_a, *log_b;       // at unit mass, −inf at points of weight 0 and in the padding
    const double *a, *b;               // weights of unit mass
    const double* row_weights;         // (n,), a, or shares of the rows sampled for extrapolations
    IterateNumbers* iterate;
    double *f, *g;
    double *plans, *outputs, *inputs;  // (3, rows, stride) each
    std::int64_t rows, stride;
    std::int64_t first_step = 0;  // the step whose matrices are at position 0
    ConicItem conic;
    bool is_conic = false;

    // The matrices of step k: the plan after it, the local cost of that plan, and the cost at which it was linearized.
    Matrix plan(std::int64_t k) const { return at(plans, k); }
    Matrix output(std::int64_t k) const { return at(outputs, k); }
    Matrix input(std::int64_t k) const { return at(inputs, k); }

    bool has_linear_cost() const { return cost.data != nullptr; }
    bool extrapolates() const { return inputs != nullptr && parameters->may_extrapolate != 0.0; }
    bool uses_proximal_steps() const { return parameters->last_entropy > parameters->eps; }

  private:
    Matrix at(double* data, std::int64_t k) const { return {data + (k - first_step + 3) % 3 * rows * stride, stride}; }
};

// A copy of the matrix (rows, cols) of an item with padded rows, zero in the padding.
static Matrix pack_matrix(Strided source, std::int64_t item, int rows, int cols, Arena& arena) {
    const Matrix target = arena.take_matrix(rows, cols);
    const double* start = source.data + item * source.item;
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < pad(cols); ++j)
            target.row(i)[j] = j < cols ? start[i * source.row + j * source.col] : 0.0;
    return target;
}

// A copy of the log weights of an item, −inf in the padding.
static double* pack_log_weights(Strided source, std::int64_t item, int count, Arena& arena) {
    double* target = arena.take(pad(count));
    const double* start = source.data + item * source.item;
    for (int j = 0; j < pad(count); ++j) target[j] = j < count ? start[j * source.col] : -INFINITE;
    return target;
}

// exp of padded values.
static double* exponentials(const double* values, int count, Arena& arena) {
    double* target = arena.take(pad(count));
    for (int j = 0; j < pad(count); j += LANES) store(target + j, exp(load(values + j)));
    return target;
}

// Shares (n,) of a sample of `count` rows at evenly spaced quantiles of the weights a; a row may be taken several times.
static double* sampled_row_weights(const double* a, int n, int count, Arena& arena) {
    double* weights = arena.take(pad(n));
    std::fill(weights, weights + pad(n), 0.0);
    double total = 0.0, cumulative = a[0];
    for (int i = 0; i < n; ++i) total += a[i];
    for (int k = 0, i = 0; k < count; ++k) {
        while (i < n - 1 && !(cumulative >= (k + 0.5) / count * total)) cumulative += a[++i];
        weights[i] += 1.0 / count;
    }
    return weights;
}

// The weights a, or shares of sampled rows where extrapolations sample the rows of costs.
static const double* extrapolation_weights(const Config& config, const double* a, int n, Arena& arena) {
    const int max_rows = static_cast<int>(config.max_rows_without_sampling);
    const bool is_sampled = config.samples_rows != 0.0 && n > max_rows;
    return is_sampled ? sampled_row_weights(a, n, max_rows, arena) : a;
}

// Doubles that `read_item` takes from an arena.
static std::size_t item_memory(int n, int m) {
    return std::size_t(n) * pad(n) + std::size_t(m) * pad(m) + std::size_t(n) * pad(m) + 2 * (pad(n) + pad(m)) + pad(n);
}

// Item i of a run, its problem copied to padded arrays.
static Item read_item(const Run& run, std::int64_t i, Arena& arena) {
    Item item;
    item.config = run.config;
    item.parameters = run.parameters + i;
    const int n = item.n = static_cast<int>(run.sizes[2 * i]);
    const int m = item.m = static_cast<int>(run.sizes[2 * i + 1]);
    item.is_conic = run.conic != nullptr;
    if (item.is_conic) {
        double* overlaps = run.conic->overlaps + i * run.conic->n_overlaps;
        const Matrix best_plan = {run.conic->best_plans + i * run.rows * run.stride, run.stride};
        item.conic = {run.conic->parameters + i, run.conic->kernels[i], overlaps, overlaps + 1, overlaps + 2, best_plan};
        item.cost = {nullptr, 0};
    } else {
        item.dx = pack_matrix(run.dx, i, n, n, arena);
        item.dy = pack_matrix(run.dy, i, m, m, arena);
        item.cost = run.cost.data == nullptr ? Matrix{nullptr, 0} : pack_matrix(run.cost, i, n, m, arena);
    }
    item.log_a = pack_log_weights(run.log_a, i, n, arena);
    item.log_b = pack_log_weights(run.log_b, i, m, arena);
    item.a = exponentials(item.log_a, n, arena);
    item.b = exponentials(item.log_b, m, arena);
    item.row_weights = extrapolation_weights(*run.config, item.a, n, arena);
    item.iterate = run.iterates + i;
    item.f = run.f + i * run.f_size;
    item.g = run.g + i * run.g_size;
    const std::int64_t size = 3 * run.rows * run.stride;
    item.plans = run.plans + i * size;
    item.outputs = run.outputs + i * size;
    item.inputs = run.inputs == nullptr ? nullptr : run.inputs + i * size;
    item.rows = run.rows;
    item.stride = run.stride;
    item.first_step = run.n_iter[i];
    return item;
}
