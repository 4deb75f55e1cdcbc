// The settings of a run and its iterate before the first step, the counterpart of `_compute_settings` and
// `Iterate.initial` in solvers/run_state.py.

// A problem on which runs from several plans are made, without their states. eps: at least that of the item.
struct Level {
    int n, m;
    Matrix dx, dy, cost;  // cost.data is null if there is no linear cost
    const double *log_a, *log_b, *a, *b, *row_weights;
    double eps, distortion_scale, cost_scale;
    Parameters parameters;  // with the fields that do not depend on a plan
};

// Moments Σ D w w' and Σ D² w w' of distances under weights of unit mass.
static std::pair<double, double> distance_moments(Matrix d, const double* w, int n) {
    double first = 0.0, second = 0.0;
    for (int i = 0; i < n; ++i) {
        Vec sum = {}, squares = {};
        for (int j = 0; j < pad(n); j += LANES) {
            const Vec entry = load(d.row(i) + j), weighted = entry * load(w + j);
            sum += weighted;
            squares += entry * weighted;
        }
        first += w[i] * sum_lanes(sum);
        second += w[i] * sum_lanes(squares);
    }
    return {first, second};
}

// Set the scales of a level and the fields of its parameters that depend on them, for an eps of at least `min_eps_share`
// times the mean distortion of the product plan; item.cost_scale: that distortion if it is known, NaN otherwise.
static void finish_level(Level& level, const Parameters& item, double min_eps_share, double min_relative_mean) {
    const auto [mean_x, square_x] = distance_moments(level.dx, level.a, level.n);
    const auto [mean_y, square_y] = distance_moments(level.dy, level.b, level.m);
    const double squares = square_x + square_y, mean = squares - 2.0 * mean_x * mean_y;
    const double computed = mean > min_relative_mean * squares ? mean : (squares > 0.0 ? squares : 1.0);
    level.distortion_scale = std::isnan(item.cost_scale) ? computed : item.cost_scale;
    level.cost_scale = level.distortion_scale;
    if (level.cost.data != nullptr) {
        double linear = 0.0;
        for (int i = 0; i < level.n; ++i) {
            Vec total = {};
            for (int j = 0; j < pad(level.m); j += LANES) total += abs(load(level.cost.row(i) + j)) * load(level.b + j);
            linear += level.a[i] * sum_lanes(total);
        }
        level.cost_scale += 0.5 * item.alpha * std::exp(-0.5 * (item.log_mass_a + item.log_mass_b)) * linear;
    }
    level.eps = std::max(item.eps, min_eps_share * level.distortion_scale);
    level.parameters = item;
    level.parameters.eps = level.eps;
    const double total = item.penalty_a + item.penalty_b + level.eps;
    level.parameters.penalty_total = total > 0.0 ? total : 1.0;
}

// The root mean square of the finite entries of a cost under a⊗b.
static double cost_rms(const Level& level, Matrix cost, double shift, Matrix linear, double weight) {
    auto entries = [&](int i, int j) {
        Vec entry = load(cost.row(i) + j) - shift;
        if (linear.data != nullptr) entry += weight * load(linear.row(i) + j);
        return finite_or_zero(entry);
    };
    Vec maxima = {};
    for (int i = 0; i < level.n; ++i)
        for (int j = 0; j < pad(level.m); j += LANES) maxima = max(maxima, abs(entries(i, j)));
    const double largest = max_lanes(maxima);
    if (!(largest > 0.0)) return 0.0;
    double total = 0.0;
    for (int i = 0; i < level.n; ++i) {
        Vec sum = {};
        for (int j = 0; j < pad(level.m); j += LANES) {
            const Vec share = entries(i, j) / largest;  // the square of an entry may be out of range
            sum += share * share * load(level.b + j);
        }
        total += level.a[i] * sum_lanes(sum);
    }
    return largest * std::sqrt(total);
}

// Set the tolerances and entropies of a run, as `_compute_settings` in solvers/run_state.py does; rms: root mean square
// of the first linearized cost.
static void set_run_parameters(const Level& level, const Config& config, double rms, Parameters& p) {
    const double rho_total = p.rho_a + p.rho_b, scale = std::min(level.cost_scale, rho_total);
    const double rounding = config.sum_rounding * std::numeric_limits<double>::epsilon();
    const double largest = config.max_proximal_share * scale;
    const double noise_entropy = rounding * std::min(rms, rho_total) / config.max_trusted_noise;
    const double last_share = config.proximal_last * (1.0 - config.proximal_rounding);
    p.last_entropy = std::max(p.eps, std::max(last_share * scale, std::min(noise_entropy, largest)));
    p.max_entropy = std::max(p.last_entropy, largest);
    const double inner_noise = rounding * (1.0 + rms / p.last_entropy);
    p.noise = p.eps > 0.0 ? rounding * (1.0 + rms / p.eps) : inner_noise;
    const double max_tol = std::max(config.max_trusted_noise, config.tol);
    p.change_tol = std::min(std::max(config.noise_factor * p.noise, config.tol), max_tol);
    const double stiffness = std::max(p.penalty_a, p.penalty_b) / scale;
    const double root = std::sqrt(std::max(stiffness, std::numeric_limits<double>::min()));
    const double stiff_residual = std::max(config.stiff_residual / root, config.min_residual);
    const double rounded_tol = std::min(std::max(config.noise_factor * inner_noise, config.tol), max_tol);
    const bool has_inner_tol = !std::isnan(config.inner_tol);
    const double required = has_inner_tol ? std::min(rounded_tol, config.inner_tol) : rounded_tol;
    p.residual_tol = std::max(std::min(required, stiff_residual), std::min(inner_noise, config.max_trusted_noise));
    const bool is_hard = p.is_hard_a != 0.0 || p.is_hard_b != 0.0;
    p.may_extrapolate = p.last_entropy <= p.eps && !is_hard ? 1.0 : 0.0;
    p.cost_scale = scale;
    p.converged_status = p.noise > config.max_trusted_noise ? config.PRECISION : config.CONVERGED;
    p.inner_tol = std::min(p.residual_tol, has_inner_tol ? config.inner_tol : config.forcing * p.change_tol);
    const double objective_scale = level.cost_scale + p.penalty_a + p.penalty_b;
    p.objective_resolution = (rounding + config.objective_resolution * config.tol) * objective_scale *
                             std::exp(p.log_mass_a + p.log_mass_b);
}

// The entropy of the first step of a run, for `parameters` that `set_run_parameters` has set.
static double first_entropy(const Config& config, const Parameters& p) {
    return p.eps < p.last_entropy ? std::max(p.last_entropy, config.proximal_first * p.cost_scale) : p.eps;
}

// Σ p log p, with 0 log 0 = 0.
static double neg_entropy(Matrix plan, int n, int m) {
    Vec total = {};
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < pad(m); j += LANES) {
            const Vec p = load(plan.row(i) + j);
            total += p > 0.0 ? p * log(p) : Vec{};
        }
    return sum_lanes(total);
}

// The problem of item i on all its points; run: a `SearchRun` or a `Run`.
template <typename AnyRun>
static Level read_level(const AnyRun& run, std::int64_t i, Arena& arena) {
    Level level;
    const int n = level.n = static_cast<int>(run.sizes[2 * i]), m = level.m = static_cast<int>(run.sizes[2 * i + 1]);
    level.dx = pack_matrix(run.dx, i, n, n, arena);
    level.dy = pack_matrix(run.dy, i, m, m, arena);
    level.cost = run.cost.data == nullptr ? Matrix{nullptr, 0} : pack_matrix(run.cost, i, n, m, arena);
    level.log_a = pack_log_weights(run.log_a, i, n, arena);
    level.log_b = pack_log_weights(run.log_b, i, m, arena);
    level.a = exponentials(level.log_a, n, arena);
    level.b = exponentials(level.log_b, m, arena);
    level.row_weights = extrapolation_weights(*run.config, level.a, n, arena);
    finish_level(level, run.parameters[i], 0.0, run.config->min_relative_mean);
    return level;
}

// The numbers of the iterate before the first step, for `parameters` that `set_run_parameters` has set.
static IterateNumbers first_iterate(const Config& config, const Parameters& parameters, const PlanNumbers& state) {
    IterateNumbers iterate = {};
    iterate.state = iterate.previous_state = state;
    iterate.solution_log_mass = iterate.residual = iterate.adds_product = iterate.iteration_multiplier = 1.0;
    iterate.objective = iterate.converged_objective = INFINITE;
    iterate.eps = std::isnan(config.anneal) ? parameters.eps : std::max(parameters.eps, parameters.max_entropy);
    iterate.last_entropy = iterate.entropy = std::max(first_entropy(config, parameters), iterate.eps);
    return iterate;
}

// Set the parameters of item i, and its iterate and local costs before the first step.
static void prepare_item(const Run& run, std::int64_t i, Arena& arena) {
    arena.reset();
    const Level level = read_level(run, i, arena);
    const int n = level.n, m = level.m;
    StateMemory memory;
    memory.take(n, m, arena);
    Item item = {};
    item.config = run.config;
    item.parameters = &level.parameters;
    item.n = n, item.m = m;
    item.dx = level.dx, item.dy = level.dy, item.cost = level.cost;
    item.log_a = level.log_a, item.log_b = level.log_b, item.a = level.a, item.b = level.b;
    const std::int64_t size = run.rows * run.stride;
    const Matrix plan = {run.plans + 3 * i * size, run.stride}, local_cost = {run.outputs + 3 * i * size, run.stride};
    const PlanNumbers state = state_of_plan(item, plan, neg_entropy(plan, n, m), memory, local_cost);
    const double weight = item.has_linear_cost() ? linear_weight(item, state.log_mass) : 0.0;
    const double rms = cost_rms(level, local_cost, state.distortion + weight * state.linear, level.cost, weight);
    run.parameters[i] = level.parameters;
    set_run_parameters(level, *run.config, rms, run.parameters[i]);
    run.iterates[i] = first_iterate(*run.config, run.parameters[i], state);
    for (std::int64_t k = 0; k < 3; ++k) {
        if (k > 0) copy(local_cost, n, m, {local_cost.data + k * size, run.stride});
        if (run.inputs != nullptr) copy(local_cost, n, m, {run.inputs + (3 * i + k) * size, run.stride});
    }
}

// Take items from a common counter until none is left.
static void prepare_items(const Run& run, std::atomic<std::int64_t>& next) {
    std::size_t memory = 0;
    for (std::int64_t i = 0; i < run.batch; ++i) {
        const int n = static_cast<int>(run.sizes[2 * i]), m = static_cast<int>(run.sizes[2 * i + 1]);
        memory = std::max(memory, item_memory(n, m) + StateMemory::size(n, m));
    }
    Arena arena(memory + 64 * PADDING);
    for (std::int64_t i = next++; i < run.batch; i = next++) prepare_item(run, i, arena);
}
