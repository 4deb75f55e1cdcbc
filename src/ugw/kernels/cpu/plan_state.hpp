// The state of a plan of unit mass: local cost, divergences, optimal mass and objective, the counterpart of
// problems/ugw.py, problems/mass.py and problems/distortion/squares.py.

struct StateMemory {
    Matrix product;  // (n, m), Dx·plan
    double *p1, *p2, *row_term, *col_term;

    void take(int n, int m, Arena& arena) {
        product = arena.take_matrix(n, m);
        for (double** vector : {&p1, &row_term}) *vector = arena.take(pad(n));
        for (double** vector : {&p2, &col_term}) *vector = arena.take(pad(m));
    }
    static std::size_t size(int n, int m) { return std::size_t(n) * pad(m) + 2 * std::size_t(pad(n) + pad(m)); }
};

// local_cost = (Dx∘Dx) p1 ⊕ (Dy∘Dy) p2 − 2 Dx·plan·Dy; returns <local_cost, plan>. memory.p1, memory.p2 are given.
static double compute_local_cost(const Item& item, Matrix plan, StateMemory& memory, Matrix local_cost) {
    const int n = item.n, m = item.m;
    multiply(item.dx, n, n, plan, m, memory.product);
    multiply(memory.product, n, m, item.dy, m, local_cost);
    weighted_square_sum(memory.p1, item.dx, n, n, memory.row_term);
    weighted_square_sum(memory.p2, item.dy, m, m, memory.col_term);
    Vec distortion = {};
    for (int i = 0; i < n; ++i) {
        double* row = local_cost.row(i);
        for (int j = 0; j < pad(m); j += LANES) {
            const Vec entry = (memory.row_term[i] + load(memory.col_term + j)) - 2.0 * load(row + j);
            store(row + j, entry);
            distortion += entry * load(plan.row(i) + j);
        }
    }
    return sum_lanes(distortion);
}

// KL(p | a) = Σ a ((1 + x) log(1 + x) − x), x = (p − a)/a, +inf where p > 0 = a.
static double kl(const double* p, const double* a, double mass, int count) {
    Vec total = {};
    for (int i = 0; i < pad(count); i += LANES) {
        const Vec weight = load(a + i), marginal = load(p + i) / mass;
        const Vec x = (marginal - weight) / max(weight, broadcast(std::numeric_limits<double>::min()));
        const Vec y = x + 1.0;
        const Vec log_term = y == 0.0 ? Vec{} : y * log1p(x);
        const Vec term = weight * (log_term - x);
        total += ((weight == 0.0) & (marginal > 0.0)) ? broadcast(INFINITE) : term;
    }
    return sum_lanes(total);
}

// Σ p log a, with 0 log 0 = 0.
static double mean_log(const double* p, const double* log_a, double mass, int count) {
    Vec total = {};
    for (int i = 0; i < pad(count); i += LANES) {
        const Vec marginal = load(p + i) / mass;
        total += marginal <= 0.0 ? Vec{} : marginal * load(log_a + i);
    }
    return sum_lanes(total);
}

// The upper real branch W(z) of w e^w = z, −1 where z < −1/e, by Halley's iteration.
static double lambert(double z, const Config& config) {
    const double e = std::exp(1.0);
    z = z < -1.0 / e ? -1.0 / e : z;
    double w = z < 0.0 ? -1.0 + std::sqrt(std::max(2.0 * (e * z + 1.0), 0.0)) : std::log1p(z);
    for (int k = 0; k < static_cast<int>(config.lambert_iterations); ++k) {
        const double excess = w * std::exp(w) - z, slope = std::exp(w) * (w + 1.0);
        if (!(std::fabs(slope) > config.min_lambert_slope)) continue;
        const double newton = excess / slope;
        w -= newton / (1.0 - 0.5 * newton * (w + 2.0) / (w + 1.0));
    }
    return w;
}

// Σ_k r_k (KL_k − log m_k): the divergences of a plan from the weights and their reference masses.
static double weighted_divergences(const Parameters& p, const PlanNumbers& plan) {
    return p.penalty_a * (plan.kl_a - p.log_mass_a) + p.penalty_b * (plan.kl_b - p.log_mass_b) +
           p.eps * (plan.kl_plan - (p.log_mass_a + p.log_mass_b));
}

// Set the optimal log mass of a plan and the one in the result, which differ where the linear cost leaves no mass.
static void set_optimal_mass(const Item& item, PlanNumbers& plan) {
    const Parameters& p = *item.parameters;
    const Config& config = *item.config;
    const double free = -(weighted_divergences(p, plan) + 0.5 * plan.distortion) / p.penalty_total;
    double log_mass = free, pull = 0.0;
    if (item.has_linear_cost()) {
        // Above 1/e the linear cost outweighs the gain of any mass.
        pull = p.alpha * plan.linear / (4.0 * p.penalty_total) * std::exp(-free > config.max_log ? config.max_log : -free);
        log_mass += lambert(-pull, config);
    }
    if (p.is_hard_b != 0.0) log_mass = p.log_mass_b;
    if (p.is_hard_a != 0.0) log_mass = p.log_mass_a;
    const bool is_hard = p.is_hard_a != 0.0 || p.is_hard_b != 0.0;
    const bool has_no_optimum = item.has_linear_cost() && !is_hard && pull > 1.0 / std::exp(1.0);
    plan.log_mass = log_mass;
    plan.reported_log_mass = has_no_optimum ? p.collapsed_log_mass + config.no_mass_log : log_mass;
    plan.is_collapsed = plan.reported_log_mass < p.collapsed_log_mass ? 1.0 : 0.0;
}

// Compute the local cost and the numbers of a plan of unit mass; neg_entropy: Σ p log p.
static PlanNumbers state_of_plan(
    const Item& item, Matrix plan, double neg_entropy, StateMemory& memory, Matrix local_cost
) {
    const int n = item.n, m = item.m;
    PlanNumbers numbers;
    sum_sides(plan, n, m, memory.p1, memory.p2);
    const double mass = sum(memory.p1, n);
    numbers.distortion = compute_local_cost(item, plan, memory, local_cost) / (mass * mass);
    numbers.kl_a = kl(memory.p1, item.a, mass, n);
    numbers.kl_b = kl(memory.p2, item.b, mass, m);
    numbers.kl_plan = neg_entropy / mass - std::log(mass) -
                      (mean_log(memory.p1, item.log_a, mass, n) + mean_log(memory.p2, item.log_b, mass, m));
    numbers.linear = item.has_linear_cost() ? dot(item.cost, plan, n, m) / mass : 0.0;
    set_optimal_mass(item, numbers);
    return numbers;
}

// KL(p⊗q | r⊗r) from divergences at unit mass, see `product_kl` in problems/mass.py.
static double product_kl(double kl_sum, double log_mass, double log_reference) {
    const double t = log_mass - 2.0 * log_reference;
    return std::exp(2.0 * log_reference) * (std::exp(t) * (kl_sum + t) - std::expm1(t));
}

// The terms of F(p, q) for plans with the given log masses; distortion: <local cost of q, p>, of unit plans.
static FinalValues objective_terms(
    const Item& item, const PlanNumbers& p, double log_mass_p, const PlanNumbers& q, double log_mass_q, double distortion
) {
    const Parameters& c = *item.parameters;
    const double log_mass = log_mass_p + log_mass_q;
    const double linear =
        item.has_linear_cost() ? 0.5 * c.alpha * (std::exp(log_mass_p) * p.linear + std::exp(log_mass_q) * q.linear) : 0.0;
    FinalValues terms = {};
    terms.distortion = std::exp(log_mass) * distortion;
    terms.linear = linear;
    terms.marginal_a = c.penalty_a * product_kl(p.kl_a + q.kl_a, log_mass, c.log_mass_a);
    terms.marginal_b = c.penalty_b * product_kl(p.kl_b + q.kl_b, log_mass, c.log_mass_b);
    terms.entropy = c.eps * product_kl(p.kl_plan + q.kl_plan, log_mass, c.log_mass_a + c.log_mass_b);
    return terms;
}

// F(p, q), the sum of `objective_terms`.
static double objective(
    const Item& item, const PlanNumbers& p, double log_mass_p, const PlanNumbers& q, double log_mass_q, double distortion
) {
    const FinalValues terms = objective_terms(item, p, log_mass_p, q, log_mass_q, distortion);
    return terms.distortion + terms.linear + terms.marginal_a + terms.marginal_b + terms.entropy;
}

// The factor alpha/2m of the linear cost in the problem divided by the mass m of a plan.
static double linear_weight(const Item& item, double log_mass) {
    const Parameters& p = *item.parameters;
    return 0.5 * p.alpha * std::exp(-std::max(log_mass, p.collapsed_log_mass));
}

// L1 distance of two unit plans plus the difference of their log masses, see `relative_change` in
// problems/plan_operations.py.
static double relative_change(const Item& item, Matrix plan, double log_mass, Matrix other, double other_log_mass) {
    double masses = std::fabs(log_mass - other_log_mass);
    masses = masses > 1.0 ? 1.0 : masses;
    if (log_mass <= item.config->min_log_mass) masses = 0.0;
    return l1_distance(plan, other, item.n, item.m) + masses;
}
