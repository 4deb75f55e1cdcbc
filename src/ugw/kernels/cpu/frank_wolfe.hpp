// Frank–Wolfe for partial and balanced GW, the counterpart of `take_step` in solvers/frank_wolfe.py and of the methods of
// `PartialGW` that it calls: the costs of the linear programs, and the step once they are solved.

// One plan of a run with the problem it belongs to: matrices have padded rows, with zeros in the padding.
struct FrankWolfePlan {
    const FrankWolfeParameters* parameters;
    int n, m;
    Matrix dx, dy, cost;  // cost.data is null if there is no linear cost
    Matrix plan, local_cost;
    double mass, linear;
    int n_rows, n_cols;                   // of its linear program
    const std::int64_t *rows, *cols;      // their points; run.n and run.m are the dummy points
    std::int64_t program;                 // where its cost and its vertex begin
};

static Matrix matrix_of_item(Rows source, std::int64_t item) {
    if (source.data == nullptr) return {nullptr, 0};
    return {const_cast<double*>(source.data) + item * source.item, source.row};
}

// A copy of rows (n, m) of a dense matrix with `cols` columns.
static Matrix pad_rows(const double* source, int n, int m, std::int64_t cols, Arena& arena) {
    const Matrix target = arena.take_matrix(n, m);
    for (int i = 0; i < n; ++i) {
        std::memcpy(target.row(i), source + i * cols, sizeof(double) * m);
        for (int j = m; j < pad(m); ++j) target.row(i)[j] = 0.0;
    }
    return target;
}

static FrankWolfePlan read_plan(const FrankWolfeRun& run, std::int64_t k, Arena& arena) {
    const std::int64_t item = run.items[k];
    const FrankWolfeProgram& program = run.programs[item];
    FrankWolfePlan p;
    p.parameters = run.parameters + item;
    p.n = static_cast<int>(program.n);
    p.m = static_cast<int>(program.m);
    p.dx = matrix_of_item(run.dx, item);
    p.dy = matrix_of_item(run.dy, item);
    p.cost = matrix_of_item(run.cost, item);
    p.plan = run.plan == nullptr ? arena.take_matrix(p.n, p.m)
                                 : pad_rows(run.plan + k * run.n * run.m, p.n, p.m, run.m, arena);
    if (run.task == SWAP) {
        p.local_cost = arena.take_matrix(p.n, p.m);
    } else {
        p.local_cost = pad_rows(run.local_cost + k * run.n * run.m, p.n, p.m, run.m, arena);
        p.mass = run.mass[k];
        p.linear = run.linear[k];
    }
    p.n_rows = static_cast<int>(program.n_rows);
    p.n_cols = static_cast<int>(program.n_cols);
    p.rows = run.supports + program.rows;
    p.cols = run.supports + program.cols;
    p.program = program.start;
    return p;
}

// `PartialGW.gradient`: 2·local cost − 2·(rho1 + rho2)·mass + alpha/unit·M.
static void compute_gradient(const FrankWolfePlan& p, Matrix gradient) {
    const double shift = 2.0 * p.parameters->total_penalty * p.mass;
    const double share = p.parameters->alpha / p.parameters->mass_unit;
    for (int i = 0; i < p.n; ++i)
        for (int j = 0; j < pad(p.m); j += LANES) {
            Vec entry = 2.0 * load(p.local_cost.row(i) + j) - shift;
            if (p.cost.data != nullptr) entry += share * load(p.cost.row(i) + j);
            store(gradient.row(i) + j, entry);
        }
}

// Numbers up to 1 in absolute value, rounded to multiples of 1/steps as by numpy.round: below 2^51, a sum with
// ROUND_TO_INTEGER is rounded to an integer.
UGW_INLINE Vec round_cost(Vec values, double steps) {
    return ((values * steps + ROUND_TO_INTEGER) - ROUND_TO_INTEGER) / steps;
}

// The cost of a linear program, scaled and rounded as by `exact_ot.optimal_partial_plan`; 0 if an entry is not finite.
// The gradient is replaced.
static void write_program_cost(const FrankWolfeRun& run, const FrankWolfePlan& p, Matrix gradient, double* out) {
    const bool has_mass = p.parameters->has_mass != 0.0;
    double lowest = INFINITE, highest = -INFINITE;
    bool is_finite = true;
    for (int r = 0; r < p.n_rows; ++r)
        for (int c = 0; c < p.n_cols; ++c) {
            if (p.rows[r] == run.n || p.cols[c] == run.m) continue;
            const double entry = gradient.row(static_cast<int>(p.rows[r]))[p.cols[c]];
            is_finite = is_finite && std::isfinite(entry);
            lowest = entry < lowest ? entry : lowest;
            highest = entry > highest ? entry : highest;
        }
    if (!is_finite || lowest > highest) {
        std::fill(out, out + std::int64_t(p.n_rows) * p.n_cols, 0.0);
        return;
    }
    const double shift = has_mass ? lowest : 0.0, range = highest - lowest;
    const double of_dummies = has_mass ? (range > 0.0 ? 2.0 * range : 1.0) : 0.0;
    const bool has_dummies = p.rows[p.n_rows - 1] == run.n && p.cols[p.n_cols - 1] == run.m;
    double size = has_mass ? range : std::max(std::abs(lowest), std::abs(highest));
    if (has_dummies) size = std::max(size, of_dummies);
    if (!(size > 0.0)) size = 1.0;
    for (int i = 0; i < p.n; ++i)
        for (int j = 0; j < pad(p.m); j += LANES)
            store(gradient.row(i) + j, round_cost((load(gradient.row(i) + j) - shift) / size, run.cost_steps));
    const double corner = round_cost(broadcast(of_dummies / size), run.cost_steps)[0];
    for (int r = 0; r < p.n_rows; ++r, out += p.n_cols) {
        const bool is_dummy = p.rows[r] == run.n;
        const double* row = is_dummy ? nullptr : gradient.row(static_cast<int>(p.rows[r]));
        for (int c = 0; c < p.n_cols; ++c)
            out[c] = p.cols[c] == run.m ? (is_dummy ? corner : 0.0) : (is_dummy ? 0.0 : row[p.cols[c]]);
    }
}

// The segment from a plan in a direction, with the numbers of `Segment` in problems/partial/base.py.
struct FrankWolfeSegment {
    double mass, linear, slope, curvature, size;  // size: Σ |d|
};

struct FrankWolfeMemory {
    Matrix gradient, direction, local_direction, product;
    double *row_sums, *col_sums, *row_squares, *col_squares;
    SwapEntries entries;

    void take(int n, int m, Arena& arena) {
        for (Matrix* matrix : {&gradient, &direction, &local_direction, &product}) *matrix = arena.take_matrix(n, m);
        for (double** sums : {&row_sums, &row_squares}) *sums = arena.take(pad(n));
        for (double** sums : {&col_sums, &col_squares}) *sums = arena.take(pad(m));
        entries.take(n, m, arena);
    }
    // Doubles for an item with its plan and local cost.
    static std::size_t size(int n, int m) {
        return 6 * std::size_t(n) * pad(m) + 2 * (pad(n) + pad(m)) + SwapEntries::memory(n, m);
    }
};

// The quadratic on the segment in the direction memory.direction, whose Dx·d·Dy is in memory.product.
static FrankWolfeSegment compute_segment(const FrankWolfePlan& p, FrankWolfeMemory& memory) {
    const FrankWolfeParameters& constants = *p.parameters;
    std::fill(memory.col_sums, memory.col_sums + pad(p.m), 0.0);
    std::fill(memory.row_sums, memory.row_sums + pad(p.n), 0.0);
    FrankWolfeSegment segment{};
    Vec size = {}, linear = {}, slope = {}, curvature = {};
    for (int i = 0; i < p.n; ++i) {
        Vec row = {};
        for (int j = 0; j < pad(p.m); j += LANES) {
            const Vec d = load(memory.direction.row(i) + j);
            row += d;
            size += abs(d);
            slope += d * load(p.local_cost.row(i) + j);
            if (p.cost.data != nullptr) linear += d * load(p.cost.row(i) + j);
            store(memory.col_sums + j, load(memory.col_sums + j) + d);
        }
        memory.row_sums[i] = sum_lanes(row);
        segment.mass += memory.row_sums[i];
    }
    weighted_square_sum(memory.row_sums, p.dx, p.n, p.n, memory.row_squares);
    weighted_square_sum(memory.col_sums, p.dy, p.m, p.m, memory.col_squares);
    for (int i = 0; i < p.n; ++i)
        for (int j = 0; j < pad(p.m); j += LANES) {
            const Vec squares = memory.row_squares[i] + load(memory.col_squares + j);
            const Vec entry = squares - 2.0 * load(memory.product.row(i) + j);
            store(memory.local_direction.row(i) + j, entry);
            curvature += entry * load(memory.direction.row(i) + j);
        }
    const double unit = constants.mass_unit, penalty = constants.total_penalty;
    segment.size = sum_lanes(size);
    segment.linear = sum_lanes(linear);
    segment.slope = unit * unit * 2.0 * (sum_lanes(slope) - penalty * p.mass * segment.mass) +
                    constants.alpha * unit * segment.linear;
    segment.curvature = unit * unit * (sum_lanes(curvature) - penalty * segment.mass * segment.mass);
    return segment;
}

// The segment toward the solution of the linear program.
static FrankWolfeSegment segment_to_vertex(const FrankWolfeRun& run, const FrankWolfePlan& p, FrankWolfeMemory& memory) {
    for (int i = 0; i < p.n; ++i)
        for (int j = 0; j < pad(p.m); j += LANES) store(memory.direction.row(i) + j, -load(p.plan.row(i) + j));
    const double* vertex = run.vertices + p.program;
    for (int r = 0; r < p.n_rows; ++r) {
        if (p.rows[r] == run.n) continue;
        double* row = memory.direction.row(static_cast<int>(p.rows[r]));
        for (int c = 0; c < p.n_cols; ++c)
            if (p.cols[c] != run.m) row[p.cols[c]] += vertex[r * p.n_cols + c] * p.parameters->program_mass;
    }
    multiply(memory.direction, p.n, p.m, p.dy, p.m, memory.local_direction);
    multiply(p.dx, p.n, p.n, memory.local_direction, p.m, memory.product);
    return compute_segment(p, memory);
}

// The minimum of slope·t + curvature·t² on [0, 1]; at t = 1 where it is concave.
static double best_step(const FrankWolfeSegment& segment) {
    if (!(segment.curvature > 0.0)) return 1.0;
    return std::min(std::max(-segment.slope / (2.0 * segment.curvature), 0.0), 1.0);
}

// The objective at a plan of given mass, distortion and linear cost.
static double objective_of(const FrankWolfeParameters& constants, double mass, double distortion, double linear) {
    const double unit = constants.mass_unit, square = unit * mass * unit * mass;
    const double penalty =
        constants.total_penalty > 0.0 ? constants.marginal_constant - constants.total_penalty * square : 0.0;
    return unit * unit * distortion + constants.alpha * unit * linear + penalty;
}

// Lower the objective at a plan by swaps, and return its change divided by mass_unit². The gradient in the memory becomes
// that at the new plan.
static double descend_by_swaps(const FrankWolfeRun& run, const FrankWolfePlan& p, FrankWolfeMemory& memory) {
    const FrankWolfeParameters& constants = *p.parameters;
    compute_gradient(p, memory.gradient);
    SwapEntries& entries = memory.entries;
    entries.dx = p.dx;
    entries.dy = p.dy;
    entries.plan = p.plan;
    entries.gradient = memory.gradient;
    entries.min_mass = run.min_share * p.mass;
    entries.list_entries();
    const double min_decrease = constants.tol * constants.gap_scale / (constants.mass_unit * constants.mass_unit);
    return entries.descend(min_decrease, run.swap_levels, run.max_swaps);
}

// The inverse of `compute_gradient`.
static void local_cost_of_gradient(const FrankWolfePlan& p, Matrix gradient) {
    const double shift = 2.0 * p.parameters->total_penalty * p.mass;
    const double share = p.parameters->alpha / p.parameters->mass_unit;
    for (int i = 0; i < p.n; ++i)
        for (int j = 0; j < pad(p.m); j += LANES) {
            Vec entry = load(gradient.row(i) + j) + shift;
            if (p.cost.data != nullptr) entry -= share * load(p.cost.row(i) + j);
            store(p.local_cost.row(i) + j, 0.5 * entry);
        }
}

// Write a matrix (n, m) of an item to the array of the batch, with zeros where the item has no points.
static void write_matrix(const FrankWolfeRun& run, const FrankWolfePlan& p, Matrix matrix, double* target) {
    std::fill(target, target + run.n * run.m, 0.0);
    for (int i = 0; i < p.n; ++i) std::memcpy(target + i * run.m, matrix.row(i), sizeof(double) * p.m);
}

// Make the step of one plan and write the state after it: `take_step` in solvers/frank_wolfe.py.
static void make_frank_wolfe_step(const FrankWolfeRun& run, std::int64_t k, Arena& arena) {
    arena.reset();
    FrankWolfePlan p = read_plan(run, k, arena);
    const FrankWolfeParameters& constants = *p.parameters;
    FrankWolfeMemory memory;
    memory.take(p.n, p.m, arena);
    const FrankWolfeSegment segment = segment_to_vertex(run, p, memory);
    const double gap = (segment.slope > 0.0 ? 0.0 : -segment.slope) / constants.gap_scale;
    const double t = gap > constants.tol ? best_step(segment) : 0.0;
    for (int i = 0; i < p.n; ++i)
        for (int j = 0; j < pad(p.m); j += LANES) {
            store(p.plan.row(i) + j, load(p.plan.row(i) + j) + t * load(memory.direction.row(i) + j));
            store(p.local_cost.row(i) + j, load(p.local_cost.row(i) + j) + t * load(memory.local_direction.row(i) + j));
        }
    p.mass += t * segment.mass;
    p.linear += t * segment.linear;
    const double swapped = t == 0.0 ? descend_by_swaps(run, p, memory) : 0.0;
    if (swapped < 0.0) {
        local_cost_of_gradient(p, memory.gradient);
        if (p.cost.data != nullptr) p.linear = dot(p.cost, p.plan, p.n, p.m);
    }
    const double distortion = dot(p.local_cost, p.plan, p.n, p.m);
    double change = 0.0;
    for (int i = 0; i < p.n; ++i)
        for (int j = 0; j < p.m; ++j) change += std::abs(p.plan.row(i)[j] - run.plan[(k * run.n + i) * run.m + j]);
    write_matrix(run, p, p.plan, run.new_plan + k * run.n * run.m);
    write_matrix(run, p, p.local_cost, run.new_local_cost + k * run.n * run.m);
    run.numbers[0 * run.batch + k] = p.mass;
    run.numbers[1 * run.batch + k] = distortion;
    run.numbers[2 * run.batch + k] = p.linear;
    run.numbers[3 * run.batch + k] = change;
    run.numbers[4 * run.batch + k] = gap;
    run.numbers[5 * run.batch + k] = objective_of(constants, p.mass, distortion, p.linear);
    const bool has_ended = t == 0.0 && !(swapped < 0.0);
    run.status[k] = !has_ended ? run.running : (p.mass < constants.min_mass ? run.collapsed : run.converged);
}

// The vertex of the north-west corner rule for one order of the rows and the columns, `north_west_corner` in
// initializers/plans.py.
static void make_vertex(const FrankWolfeRun& run, std::int64_t k, Matrix plan, int n) {
    const double *a = run.a + run.items[k] * run.n, *b = run.b + run.items[k] * run.m;
    const std::int64_t *rows = run.row_orders + k * run.n, *cols = run.col_orders + k * run.m;
    for (int i = 0; i < n; ++i) std::fill(plan.row(i), plan.row(i) + plan.stride, 0.0);
    double end_a = 0.0, end_b = 0.0, start = 0.0, total = 0.0;
    for (std::int64_t i = 0; i < run.n; ++i) total += a[i];
    std::int64_t i = -1, j = -1;
    bool takes_row = true, takes_col = true;
    for (;;) {
        if (takes_row) {
            do ++i;
            while (i < run.n && !(a[rows[i]] > 0.0));
            if (i == run.n) return;
            end_a += a[rows[i]];
        }
        if (takes_col) {
            do ++j;
            while (j < run.m && !(b[cols[j]] > 0.0));
            if (j == run.m) return;
            end_b += b[cols[j]];
        }
        const double end = std::min(end_a, end_b);
        if (end - start > run.min_share * total) plan.row(static_cast<int>(rows[i]))[cols[j]] = end - start;
        takes_row = !(end_a > end);
        takes_col = !(end_b > end);
        start = end;
    }
}

// Lower the objective at a given plan, or at a vertex of the north-west corner rule, by swaps; write plan and objective.
static void swap_plan(const FrankWolfeRun& run, std::int64_t k, Arena& arena) {
    arena.reset();
    FrankWolfePlan p = read_plan(run, k, arena);
    const FrankWolfeParameters& constants = *p.parameters;
    FrankWolfeMemory memory;
    memory.take(p.n, p.m, arena);
    if (run.row_orders != nullptr) make_vertex(run, k, p.plan, p.n);
    copy(p.plan, p.n, p.m, memory.direction);
    for (int i = 0; i < p.n; ++i) std::fill(p.local_cost.row(i), p.local_cost.row(i) + pad(p.m), 0.0);
    multiply(p.plan, p.n, p.m, p.dy, p.m, memory.local_direction);
    multiply(p.dx, p.n, p.n, memory.local_direction, p.m, memory.product);
    // The segment from the empty plan: its local cost is that of the plan.
    const FrankWolfeSegment segment = compute_segment(p, memory);
    p.mass = segment.mass;
    p.linear = segment.linear;
    p.local_cost = memory.local_direction;
    const double unit = constants.mass_unit;
    const double before = objective_of(constants, p.mass, dot(p.local_cost, p.plan, p.n, p.m), p.linear);
    const double change = descend_by_swaps(run, p, memory);
    write_matrix(run, p, p.plan, run.new_plan + k * run.n * run.m);
    run.numbers[5 * run.batch + k] = before + unit * unit * change;
}

// Write the cost of the linear program at one plan.
static void write_frank_wolfe_cost(const FrankWolfeRun& run, std::int64_t k, Arena& arena) {
    arena.reset();
    const FrankWolfePlan p = read_plan(run, k, arena);
    const Matrix gradient = arena.take_matrix(p.n, p.m);
    compute_gradient(p, gradient);
    write_program_cost(run, p, gradient, run.costs + p.program);
}

// Take plans from a common counter until none is left.
static void run_frank_wolfe(const FrankWolfeRun& run, std::atomic<std::int64_t>& next) {
    std::size_t memory = 0;
    for (std::int64_t k = 0; k < run.batch; ++k) {
        const FrankWolfeProgram& program = run.programs[run.items[k]];
        memory = std::max(memory, FrankWolfeMemory::size(static_cast<int>(program.n), static_cast<int>(program.m)));
    }
    Arena arena(memory + 64 * PADDING);
    for (std::int64_t k = next++; k < run.batch; k = next++) {
        if (run.task == MAKE_STEP)
            make_frank_wolfe_step(run, k, arena);
        else if (run.task == SWAP)
            swap_plan(run, k, arena);
        else
            write_frank_wolfe_cost(run, k, arena);
    }
}
