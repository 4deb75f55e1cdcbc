// One step of alternating minimization and the controls of the next one, the counterpart of solvers/alternating.py.

struct StepMemory : LinearMemory {
    StateMemory state;
    ConicMemory conic;  // only of conic items

    void take(int n, int m, Arena& arena) {
        LinearMemory::take(n, m, arena);
        state.take(n, m, arena);
    }
    static std::size_t size(int n, int m) { return LinearMemory::size(n, m) + StateMemory::size(n, m); }
};

// The entropy of the linear problem at an iterate; the part above eps is proximal.
static double linear_entropy(const Item& item, const IterateNumbers& iterate) {
    return item.uses_proximal_steps() ? iterate.entropy : iterate.eps;
}

// log_kernel = −cost/entropy of the linear problem at the iterate: the cost ∂F(·, q)/∂p divided by the mass of q, minus a
// constant, plus the proximal term (entropy − eps)·KL(p | reference) relative to a⊗b.
static void linearize(const Item& item, Matrix local_cost, Matrix plan, double entropy, Matrix log_kernel) {
    const IterateNumbers& iterate = *item.iterate;
    const double weight = item.has_linear_cost() ? linear_weight(item, iterate.state.log_mass) : 0.0;
    const double mean_cost = iterate.state.distortion + (item.has_linear_cost() ? weight * iterate.state.linear : 0.0);
    const double strength = item.uses_proximal_steps() ? iterate.entropy - iterate.eps : 0.0;
    const double product_share = item.config->product_share * iterate.adds_product;
    const double factor = -1.0 / entropy;
    for (int i = 0; i < item.n; ++i)
        for (int j = 0; j < pad(item.m); j += LANES) {
            Vec cost = load(local_cost.row(i) + j);
            if (item.has_linear_cost()) cost += weight * load(item.cost.row(i) + j);
            cost -= mean_cost;
            if (strength > 0.0) {
                Vec reference = load(plan.row(i) + j);
                reference += product_share * (item.a[i] * load(item.b + j) - reference);
                const Vec log_ratio = log(reference) - item.log_a[i] - load(item.log_b + j);
                // A zero of the reference stays a zero, whatever the weights.
                cost = reference > 0.0 ? cost - strength * log_ratio : broadcast(INFINITE);
            }
            store(log_kernel.row(i) + j, cost * factor);
        }
}

// The tolerance of the next inner solve and the multiple of its iterations. A change of 0 marks a plan that may be a
// solution, whose linear problem is to be solved well.
static std::pair<double, double> inner_effort(const Item& item) {
    const Config& config = *item.config;
    const IterateNumbers& iterate = *item.iterate;
    const double tolerance = std::max(item.parameters->inner_tol, std::min(config.forcing * iterate.change, config.max_inner_tol));
    double multiplier = iterate.iteration_multiplier;
    if (config.tol <= config.coarse_tol && iterate.change == 0.0) multiplier *= config.first_iteration_multiplier;
    return {tolerance, multiplier};
}

// Solve the linear problem at the iterate: potentials in memory.sinkhorn, `plan` of unit mass; returns the residual and
// the sums of the plan.
static std::pair<double, PlanSums> solve_linear_problem(
    const Item& item, Matrix local_cost, Matrix last_plan, double entropy, StepMemory& memory, Matrix plan
) {
    linearize(item, local_cost, last_plan, entropy, memory.log_kernel);
    const LinearProblem problem = make_linear_problem(
        item.n, item.m, item.log_a, item.log_b, memory.log_kernel, entropy, item.parameters->rho_a,
        item.parameters->rho_b, *item.config
    );
    SinkhornMemory& s = memory.sinkhorn;
    for (int i = 0; i < pad(item.n); ++i) s.phi[i] = i < item.n ? item.f[i] / entropy : 0.0;
    for (int j = 0; j < pad(item.m); ++j) s.gamma[j] = j < item.m ? item.g[j] / entropy : 0.0;
    const auto [tolerance, multiplier] = inner_effort(item);
    const Config& config = *item.config;
    const double max_rounds = std::ceil(config.inner_max_iter / config.iterations_per_check * multiplier);
    const double residual = run_rounds(problem, memory.kernel, config, tolerance, max_rounds, s);
    return {residual, compute_plan(problem, s, plan)};
}

// The multiple of the inner iterations, doubled where only the inner solver has not converged.
static double next_iteration_multiplier(const Item& item, double change, double residual) {
    const Config& config = *item.config;
    const double multiplier = item.iterate->iteration_multiplier;
    if (config.tol > config.coarse_tol) return multiplier;
    const bool waits =
        change <= config.near_convergence * item.parameters->change_tol && residual > item.parameters->residual_tol;
    const double largest = std::max(1.0, config.max_inner_iter / config.inner_max_iter);
    return waits ? std::min(2.0 * multiplier, largest) : multiplier;
}

// The eps of the next step: annealed from the last eps, or that of the problem if nothing is annealed or little is left.
static double next_eps(const Item& item, double last_eps) {
    const Config& config = *item.config;
    const Parameters& p = *item.parameters;
    const double annealed = config.anneal * last_eps;
    if (std::isnan(config.anneal) || annealed < config.negligible_eps_share * p.last_entropy) return p.eps;
    return std::max(p.eps, annealed);
}

// The entropy of the next step: lower, or higher again where the inner solver does not keep up.
static double next_entropy(const Item& item, double next_eps, double residual) {
    const Config& config = *item.config;
    const Parameters& p = *item.parameters;
    double entropy = p.last_entropy;
    if (item.uses_proximal_steps()) {
        const double lower = std::max(p.last_entropy, config.proximal_factor * item.iterate->entropy);
        const double higher = std::min(p.max_entropy, item.iterate->entropy / config.proximal_factor);
        entropy = residual <= config.max_residual_of_solved ? lower : higher;
    }
    return std::max(next_eps, entropy);
}

// Does some entry grow faster in a proximal step than in a converged plan, where log growth is at most `allowed`?
static bool has_growing_entries(const Item& item, Matrix before, Matrix after, double allowed) {
    Vec largest = {};
    for (int i = 0; i < item.n; ++i)
        for (int j = 0; j < pad(item.m); j += LANES) {
            const Vec growth = log(load(after.row(i) + j)) - log(load(before.row(i) + j));
            largest = max(largest, finite_or_zero(growth));
        }
    return max_lanes(largest) > allowed;
}

// The result of a step before it is accepted; relaxed: the objective of the new and the last plan.
struct StepResult {
    PlanNumbers state;
    double objective, relaxed, change, residual, solution_log_mass;
    bool is_worse;
};

// The status after a step, before the checks of proximal steps. `old` are the numbers before the step.
static int status_after_step(const Item& item, const IterateNumbers& old, const StepResult& step, double n_returns) {
    const Config& config = *item.config;
    const Parameters& p = *item.parameters;
    // The stronger the proximal term, the shorter the steps.
    const double change = step.change * old.entropy / p.last_entropy;
    const bool is_converged = change <= p.change_tol && step.residual <= p.residual_tol && old.eps <= p.eps &&
                              old.is_extrapolated == 0.0;
    if (is_converged) return static_cast<int>(step.state.is_collapsed != 0.0 ? config.COLLAPSED : p.converged_status);
    const bool alternates =
        config.is_monitored != 0.0 && n_returns >= config.alternation_steps && step.change > p.change_tol;
    return static_cast<int>(alternates ? config.ALTERNATING : config.RUNNING);
}

// The status after checking whether a plan of proximal steps has really converged: not while some entry still grows, nor
// if its objective is below that of the last converged plan; then it continues once from a reference without zeros.
static int check_proximal_convergence(
    const Item& item, const IterateNumbers& old, const StepResult& step, Matrix before, Matrix after, int status
) {
    const Config& config = *item.config;
    const Parameters& p = *item.parameters;
    const int running = static_cast<int>(config.RUNNING);
    if (status == running || !(old.entropy > old.eps)) return status;
    const double allowed = std::max(config.max_negative_gradient * p.cost_scale / old.entropy, p.noise);
    if (has_growing_entries(item, before, after, allowed)) return running;
    const double required =
        old.converged_objective - config.min_improvement * std::fabs(step.objective) - p.objective_resolution;
    item.iterate->converged_objective = step.objective;
    if (!(step.objective < required)) return status;
    item.iterate->adds_product = 1.0;
    return running;
}

// Set the local cost at which the next step is linearized, extrapolated where the last steps allow it. k: the step made.
static void extrapolate_next(const Item& item, const IterateNumbers& old, const StepResult& step, std::int64_t k) {
    const Config& config = *item.config;
    const Parameters& p = *item.parameters;
    IterateNumbers& iterate = *item.iterate;
    const Matrix inputs[3] = {item.input(k - 3), item.input(k - 2), item.input(k - 1)};
    const Matrix outputs[3] = {item.output(k - 2), item.output(k - 1), item.output(k)};
    // A plan that has converged must confirm it by a plain step.
    const bool is_ready = step.change < config.max_change_to_extrapolate && step.change > p.change_tol &&
                          !step.is_worse && old.eps <= p.eps && old.n_steps >= 2.0;
    Extrapolation chosen = {};
    if (is_ready) {
        double gram[5][5];
        anderson_covariances(item, inputs, outputs, gram);
        chosen = choose_extrapolation(config, gram, step.change / p.change_tol, old.had_rejected_long_step != 0.0);
    }
    if (chosen.is_extrapolated)
        extrapolate(item, inputs[2], outputs, chosen.factors, item.input(k));
    else
        copy(outputs[2], item.n, item.m, item.input(k));
    iterate.is_extrapolated = chosen.is_extrapolated ? 1.0 : 0.0;
    iterate.n_steps = step.is_worse ? 0.0 : old.n_steps + 1.0;
    iterate.is_long_step = chosen.is_long_step ? 1.0 : 0.0;
    if (step.is_worse && old.is_long_step != 0.0) iterate.had_rejected_long_step = 1.0;
}

// Make step k = 1, 2, ...: set the new plan, local cost and potentials, and the result of the step. A worse plan after an
// extrapolation is rejected: the plan before is kept.
static StepResult make_step(const Item& item, std::int64_t k, StepMemory& memory) {
    const IterateNumbers& old = *item.iterate;
    const Matrix last_plan = item.plan(k - 1), plan = item.plan(k), last_cost = item.output(k - 1), cost = item.output(k);
    const Matrix local_cost = item.extrapolates() ? item.input(k - 1) : last_cost;
    const double entropy = linear_entropy(item, old);
    StepResult step;
    const auto solved = solve_linear_problem(item, local_cost, last_plan, entropy, memory, plan);
    step.residual = solved.first;
    step.solution_log_mass = solved.second.log_mass;
    step.state = state_of_plan(item, plan, solved.second.neg_entropy, memory.state, cost);
    step.change = relative_change(item, plan, step.state.log_mass, last_plan, old.state.log_mass);
    const double reported = step.state.reported_log_mass;
    step.objective = objective(item, step.state, reported, step.state, reported, step.state.distortion);
    step.is_worse = step.objective - old.objective > item.parameters->objective_resolution;
    if (step.is_worse && old.is_extrapolated != 0.0) {
        copy(last_plan, item.n, item.m, plan);
        copy(last_cost, item.n, item.m, cost);
        step.state = old.state;
        step.objective = old.objective;
        step.change = old.change;
    }
    if (item.config->is_monitored != 0.0) {
        const double distortion = dot(last_cost, plan, item.n, item.m);
        step.relaxed =
            objective(item, step.state, step.state.log_mass, old.state, old.state.log_mass, distortion);
    }
    return step;
}

// Make step k = 1, 2, ... of a conic item: set the new plan, local cost, overlaps and potentials, and the result.
static StepResult make_conic_step(const Item& item, std::int64_t k, StepMemory& memory) {
    const Config& config = *item.config;
    const ConicItem& conic = item.conic;
    const Matrix last_plan = item.plan(k - 1), plan = item.plan(k), last_cost = item.output(k - 1), cost = item.output(k);
    item.iterate->state.distortion = conic_cost(item, last_cost, item.output(k - 2), last_plan, memory.conic);
    const double entropy = linear_entropy(item, *item.iterate);
    StepResult step = {};
    const Matrix solution = memory.conic.improved;
    const auto solved = solve_linear_problem(item, memory.conic.cost, last_plan, entropy, memory, solution);
    step.residual = solved.first;
    step.solution_log_mass = solved.second.log_mass;
    double value = improve_plan(item, solution, last_cost, memory.conic, plan);
    double overlap = apply_kernel(item, memory.conic, cost);
    if (!(std::max(value, overlap) >= std::max(*conic.last_overlap, *conic.overlap))) {
        const Matrix better = *conic.last_overlap > *conic.overlap ? item.plan(k - 2) : last_plan;
        value = improve_plan(item, better, last_cost, memory.conic, plan);
        overlap = apply_kernel(item, memory.conic, cost);
    }
    step.objective = conic_objective(item, overlap);
    step.relaxed = conic_objective(item, value);
    step.state = {};
    step.state.log_mass = step.state.reported_log_mass =
        0.5 * (conic.parameters->log_mass_factor + std::log(std::max(overlap, config.min_overlap)));
    step.state.is_collapsed = overlap <= config.min_overlap ? 1.0 : 0.0;
    step.change = relative_change(item, plan, step.state.log_mass, last_plan, item.iterate->state.log_mass);
    if (!std::isfinite(step.objective + step.relaxed + step.change + step.residual)) return step;
    const int n_overlaps = 2 * static_cast<int>(config.decrease_window) + 1;
    double* best = conic.best_overlaps;
    const double best_before = best[n_overlaps - 1];
    std::copy(best + 1, best + n_overlaps, best);
    best[n_overlaps - 1] = std::max(overlap, best_before);
    if (overlap >= best_before) copy(plan, item.n, item.m, conic.best_plan);
    *conic.overlap = overlap;
    *conic.last_overlap = value;
    step.change = remaining_decrease(item, best, step.change);
    return step;
}

// Make step k = 1, 2, ... and set the controls of the next one; returns the status. If the step is not finite, nothing is
// changed but the plan and local cost of step k. row: numbers of the step, set in monitored runs.
static int advance(const Item& item, std::int64_t k, StepMemory& memory, HistoryRow& row) {
    const Config& config = *item.config;
    IterateNumbers& iterate = *item.iterate;
    const IterateNumbers old = iterate;
    const bool is_monitored = config.is_monitored != 0.0;
    const StepResult step = item.is_conic ? make_conic_step(item, k, memory) : make_step(item, k, memory);
    row = {step.objective, 0.0, step.change, step.residual, 0.0};
    double n_returns = old.n_returns;
    if (is_monitored) {
        row.relaxed = step.relaxed;
        row.mass = std::exp(step.state.reported_log_mass);
        const double since_previous = relative_change(
            item, item.plan(k), step.state.log_mass, item.plan(k - 2), old.previous_state.log_mass
        );
        n_returns = since_previous <= config.alternation_tol * config.tol ? old.n_returns + 1.0 : 0.0;
    }
    if (!std::isfinite(row.objective + row.relaxed + row.change + row.residual + row.mass))
        return static_cast<int>(config.NON_FINITE);
    const double entropy = linear_entropy(item, old);
    for (int i = 0; i < item.n; ++i) item.f[i] = entropy * memory.sinkhorn.phi[i];
    for (int j = 0; j < item.m; ++j) item.g[j] = entropy * memory.sinkhorn.gamma[j];
    iterate.state = step.state;
    iterate.previous_state = old.state;
    iterate.solution_log_mass = step.solution_log_mass;
    iterate.last_entropy = old.entropy;
    iterate.objective = step.objective;
    iterate.change = step.change;
    iterate.residual = step.residual;
    iterate.n_returns = n_returns;
    iterate.eps = next_eps(item, old.eps);
    iterate.iteration_multiplier = next_iteration_multiplier(item, step.change, step.residual);
    iterate.entropy = next_entropy(item, iterate.eps, step.residual);
    iterate.adds_product = 0.0;
    if (item.extrapolates()) extrapolate_next(item, old, step, k);
    int status = status_after_step(item, old, step, n_returns);
    if (item.uses_proximal_steps())
        status = check_proximal_convergence(item, old, step, item.plan(k - 1), item.plan(k), status);
    return status;
}
