// Sinkhorn iterations on a stored cost, the counterpart of kernels/sinkhorn.py and solvers/sinkhorn.py.
//
// Potentials are dimensionless here: phi = f/eps and gamma = g/eps.

// A linear problem: log_kernel = −cost/eps; damping = 1/(1 + eps/rho); share = 1/(eps/rho1 + eps/rho2), 0 where hard.
struct LinearProblem {
    int n, m;
    const double *log_a, *log_b;
    Matrix log_kernel;
    double damping_a, damping_b, share;
};

// The matrix K = exp(log a ⊕ log b − cost/eps + alpha ⊕ beta) and its transpose, centered at a potential gamma.
struct StabilizedKernel {
    Matrix matrix, transposed;
    double *alpha, *beta, *offset_a, *offset_b, *center;
};

// The result of a round of iterations.
struct Round {
    double *phi, *gamma, *extrapolated_gamma;
    double residual;
};

// Vectors that the iterations work on, padded.
struct SinkhornMemory {
    double *x, *last_x, *new_x, *u, *sums_a, *p1, *row_lse;
    double *y, *last_y, *previous_y, *new_y, *v, *sums_b, *p2, *col_lse;
    double *phi, *gamma, *next_gamma;  // the state of the rounds
    Round round;

    void take(int n, int m, Arena& arena) {
        for (double** vector : {&x, &last_x, &new_x, &u, &sums_a, &p1, &row_lse, &phi, &round.phi})
            *vector = arena.take(pad(n));
        for (double** vector : {&y, &last_y, &previous_y, &new_y, &v, &sums_b, &p2, &col_lse, &gamma, &next_gamma,
                                &round.gamma, &round.extrapolated_gamma})
            *vector = arena.take(pad(m));
    }
    static std::size_t size(int n, int m) { return 9 * std::size_t(pad(n)) + 12 * std::size_t(pad(m)); }
};

// The linear problem for a log_kernel = −cost/eps.
static LinearProblem make_linear_problem(
    int n, int m, const double* log_a, const double* log_b, Matrix log_kernel, double eps, double rho_a, double rho_b,
    const Config& config
) {
    const double slope_a = eps / rho_a, slope_b = eps / rho_b, slope = slope_a + slope_b;
    const double min_slope = config.hard_side_rounding * std::numeric_limits<double>::epsilon();
    const double share = slope <= min_slope ? 0.0 : 1.0 / slope;
    return {n, m, log_a, log_b, log_kernel, 1.0 / (1.0 + slope_a), 1.0 / (1.0 + slope_b), share};
}

// The matrices and vectors that the solution of a linear problem needs.
struct LinearMemory {
    Matrix log_kernel;
    StabilizedKernel kernel;
    SinkhornMemory sinkhorn;

    void take(int n, int m, Arena& arena) {
        log_kernel = arena.take_matrix(n, m);
        kernel.matrix = arena.take_matrix(n, m);
        kernel.transposed = arena.take_matrix(m, n);
        for (double** vector : {&kernel.alpha, &kernel.offset_a}) *vector = arena.take(pad(n));
        for (double** vector : {&kernel.beta, &kernel.offset_b}) *vector = arena.take(pad(m));
        kernel.center = arena.take(pad(n) + pad(m));
        sinkhorn.take(n, m, arena);
    }
    static std::size_t size(int n, int m) {
        const std::size_t matrices = 2 * std::size_t(n) * pad(m) + std::size_t(m) * pad(n);
        return matrices + 3 * std::size_t(pad(n) + pad(m)) + SinkhornMemory::size(n, m);
    }
};

// Center a kernel at the potential gamma: the largest entry of every row and column with weight becomes 1.
static void center_kernel(const LinearProblem& problem, const double* gamma, StabilizedKernel& kernel) {
    const int n = problem.n, m = problem.m, cols = pad(m);
    double* col_shift = kernel.offset_b;  // log b + gamma, until the shifts of the columns are known
    double* largest = kernel.beta;        // the largest entry of each column so far
    for (int j = 0; j < cols; j += LANES) {
        store(col_shift + j, load(problem.log_b + j) + load(gamma + j));
        store(largest + j, broadcast(-INFINITE));
    }
    for (int i = 0; i < n; ++i) {
        const double* row = problem.log_kernel.row(i);
        Vec row_largest = broadcast(-INFINITE);
        for (int j = 0; j < cols; j += LANES) row_largest = max(load(row + j) + load(col_shift + j), row_largest);
        const bool has_weight = problem.log_a[i] > -INFINITE;
        const double shift = has_weight ? finite_or_zero(-max_lanes(row_largest)) : -INFINITE;
        kernel.alpha[i] = has_weight ? shift - problem.log_a[i] : 0.0;
        kernel.offset_a[i] = finite_or_zero(kernel.alpha[i] + problem.log_a[i]);
        kernel.center[i] = shift;
        for (int j = 0; j < cols; j += LANES)
            store(largest + j, max(load(row + j) + (load(col_shift + j) + shift), load(largest + j)));
    }
    for (int i = n; i < pad(n); ++i) kernel.alpha[i] = kernel.offset_a[i] = 0.0;
    for (int j = 0; j < cols; j += LANES) {
        const Vec shift = finite_or_zero(-load(largest + j));
        store(kernel.beta + j, load(gamma + j) + shift);
        store(col_shift + j, load(col_shift + j) + shift);
    }
    for (int i = 0; i < n; ++i) {
        const double* row = problem.log_kernel.row(i);
        const double shift = kernel.center[i];
        for (int j = 0; j < cols; j += LANES)
            store(kernel.matrix.row(i) + j, exp(load(row + j) + (load(col_shift + j) + shift)));
    }
    transpose(kernel.matrix, n, m, kernel.transposed);
    for (int j = 0; j < cols; j += LANES) {
        store(kernel.offset_b + j, finite_or_zero(load(kernel.beta + j) + load(problem.log_b + j)));
        store(kernel.center + j, load(gamma + j));
    }
}

// Is the potential gamma near the center of the kernel, where the kernel is accurate?
static bool is_near_center(const StabilizedKernel& kernel, const double* gamma, int m, const Config& config) {
    const double limit = config.max_recentering_fraction * std::log(std::numeric_limits<double>::max());
    bool is_near = true;
    for (int j = 0; j < m; ++j) is_near &= std::fabs(gamma[j] - kernel.center[j]) <= limit;
    return is_near;
}

// A sum below this may have lost entries of K to underflow.
static double underflow_floor(const double* scaling, int count) {
    double largest = scaling[0];
    for (int j = 1; j < count; ++j) largest = largest < scaling[j] ? scaling[j] : largest;
    using limits = std::numeric_limits<double>;
    return largest * (count * limits::min() / limits::epsilon());
}

// One half of an iteration: the update of a potential from the sums of the other side, its exponentials `scaling` and
// the marginal that they give; returns the mass of the marginal. Sums up to `floor` give NaN.
UGW_INLINE double update_side(
    const double* sums, const double* log_weights, const double* centering, const double* offset, double damping,
    int count, double floor, double* updated, double* scaling, double* marginal
) {
    Vec mass = {};
    for (int i = 0; i < pad(count); i += LANES) {
        const Vec sum = load(sums + i);
        // Points of weight 0 have the sum 0: they get a sum that has a logarithm.
        const Vec padded = load(log_weights + i) == -INFINITE ? sum + 1.0 : sum;
        const Vec checked = padded > floor ? padded : broadcast(NOT_A_NUMBER);
        const Vec value = (damping * load(offset + i) - load(centering + i)) - damping * log(checked);
        const Vec exponential = exp(value);
        const Vec p = exponential * sum;
        store(updated + i, value);
        store(scaling + i, exponential);
        store(marginal + i, p);
        mass += p;
    }
    return sum_lanes(mass);
}

// Aitken's extrapolation of gamma, and the share of the plan's mass that the last updates moved. new_x, new_y: potentials
// of the last iteration before its translation; p1: row sums of the plan before the update of x, p2: column sums after that
// of y, of unit mass.
static void finish_round(const LinearProblem& problem, const Config& config, SinkhornMemory& memory) {
    Vec moved = {}, product = {}, square = {};
    for (int i = 0; i < pad(problem.n); i += LANES) {
        const Vec update = load(memory.new_x + i) - load(memory.last_x + i);
        moved += load(memory.p1 + i) * min(abs(update), broadcast(1.0));
    }
    for (int j = 0; j < pad(problem.m); j += LANES) {
        const Vec y = load(memory.y + j), last_y = load(memory.last_y + j), p = load(memory.p2 + j);
        const Vec previous_change = last_y - load(memory.previous_y + j);
        moved += p * min(abs(load(memory.new_y + j) - last_y), broadcast(1.0));
        product += p * previous_change * (y - last_y);
        square += p * previous_change * previous_change;
    }
    double rate = sum_lanes(product) / sum_lanes(square);
    rate = std::isnan(rate) ? 0.0 : std::min(std::max(rate, 0.0), config.max_aitken_rate);
    const double factor = rate / (1.0 - rate);
    for (int j = 0; j < pad(problem.m); j += LANES) {
        const Vec change = load(memory.y + j) - load(memory.last_y + j);
        store(memory.round.extrapolated_gamma + j, load(memory.round.gamma + j) + factor * change);
    }
    memory.round.residual = sum_lanes(moved);
}

// A round of iterations with the stored matrix: x = phi − alpha and y = gamma − beta, whose exponentials u and v scale K
// to the plan. Sums that underflow give NaN.
static void iterate_stabilized(
    const LinearProblem& problem, const StabilizedKernel& kernel, const Config& config, SinkhornMemory& memory
) {
    const int n = problem.n, m = problem.m;
    SinkhornMemory& s = memory;
    for (int j = 0; j < pad(m); j += LANES) {
        const Vec y = load(s.next_gamma + j) - load(kernel.beta + j);
        store(s.y + j, y);
        store(s.v + j, exp(y));
    }
    double mass_b = 1.0;
    for (int remaining = static_cast<int>(config.iterations_per_check) - 1; remaining >= 0; --remaining) {
        std::swap(s.x, s.last_x);
        std::swap(s.previous_y, s.last_y);
        std::swap(s.last_y, s.y);
        weighted_row_sum(s.v, kernel.transposed, m, n, s.sums_a);
        double floor = remaining == 0 ? underflow_floor(s.v, m) : -1.0;
        const double mass_a = update_side(
            s.sums_a, problem.log_a, kernel.alpha, kernel.offset_a, problem.damping_a, n, floor, s.new_x, s.u, s.p1
        );
        weighted_row_sum(s.u, kernel.matrix, n, m, s.sums_b);
        floor = remaining == 0 ? underflow_floor(s.u, n) : -1.0;
        mass_b = update_side(
            s.sums_b, problem.log_b, kernel.beta, kernel.offset_b, problem.damping_b, m, floor, s.new_y, s.v, s.p2
        );
        const double shift = problem.share * std::log(mass_a / mass_b), factor = std::exp(-shift);
        for (int i = 0; i < pad(n); i += LANES) store(s.x + i, load(s.new_x + i) + shift);
        for (int j = 0; j < pad(m); j += LANES) {
            store(s.y + j, load(s.new_y + j) - shift);
            store(s.v + j, load(s.v + j) * factor);
        }
    }
    for (int i = 0; i < pad(n); i += LANES) {
        store(s.round.phi + i, load(s.x + i) + load(kernel.alpha + i));
        store(s.p1 + i, log(load(s.p1 + i)) - (load(s.new_x + i) - load(s.last_x + i)));
    }
    softmax(s.p1, n, s.p1);
    for (int j = 0; j < pad(m); j += LANES) {
        store(s.round.gamma + j, load(s.y + j) + load(kernel.beta + j));
        store(s.p2 + j, load(s.p2 + j) / mass_b);
    }
    finish_round(problem, config, memory);
}

// out_i = log Σ_j exp(log_kernel_ij + shift_j) for the first n rows, 0 in the padding.
static void row_logsumexp(const LinearProblem& problem, const double* shift, double* out) {
    for (int i = 0; i < pad(problem.n); ++i) {
        out[i] = 0.0;
        if (i >= problem.n) continue;
        const double* row = problem.log_kernel.row(i);
        Vec largest = broadcast(-INFINITE), total = {};
        for (int j = 0; j < pad(problem.m); j += LANES) largest = max(load(row + j) + load(shift + j), largest);
        const double center = finite_or_zero(max_lanes(largest));
        for (int j = 0; j < pad(problem.m); j += LANES) total += exp(load(row + j) + load(shift + j) - center);
        out[i] = center + std::log(sum_lanes(total));
    }
}

// out_j = log Σ_i exp(log_kernel_ij + shift_i).
static void col_logsumexp(const LinearProblem& problem, const double* shift, double* out) {
    for (int j = 0; j < pad(problem.m); j += LANES) {
        Vec largest = broadcast(-INFINITE), total = {};
        for (int i = 0; i < problem.n; ++i) largest = max(load(problem.log_kernel.row(i) + j) + shift[i], largest);
        const Vec center = finite_or_zero(largest);
        for (int i = 0; i < problem.n; ++i) total += exp(load(problem.log_kernel.row(i) + j) + shift[i] - center);
        store(out + j, center + log(total));
    }
}

// potential = −damping·lse, 0 where infinite, and the log of the marginal that it gives.
UGW_INLINE void update_side_in_log_domain(
    const double* lse, const double* log_weights, double damping, int count, double* potential, double* log_marginal
) {
    for (int i = 0; i < pad(count); i += LANES) {
        const Vec value = infinite_as_zero(-damping * load(lse + i));
        store(potential + i, value);
        store(log_marginal + i, load(log_weights + i) + value + load(lse + i));
    }
}

// A round of iterations by log-sum-exp, where nothing underflows; x, y are phi and gamma themselves.
static void iterate_in_log_domain(const LinearProblem& problem, const Config& config, SinkhornMemory& memory) {
    const int n = problem.n, m = problem.m;
    SinkhornMemory& s = memory;
    std::memcpy(s.y, s.next_gamma, sizeof(double) * pad(m));
    for (int remaining = static_cast<int>(config.iterations_per_check) - 1; remaining >= 0; --remaining) {
        std::swap(s.x, s.last_x);
        std::swap(s.previous_y, s.last_y);
        std::swap(s.last_y, s.y);
        for (int j = 0; j < pad(m); j += LANES) store(s.v + j, load(problem.log_b + j) + load(s.last_y + j));
        row_logsumexp(problem, s.v, s.row_lse);
        update_side_in_log_domain(s.row_lse, problem.log_a, problem.damping_a, n, s.new_x, s.p1);
        for (int i = 0; i < pad(n); i += LANES) store(s.u + i, load(problem.log_a + i) + load(s.new_x + i));
        col_logsumexp(problem, s.u, s.col_lse);
        update_side_in_log_domain(s.col_lse, problem.log_b, problem.damping_b, m, s.new_y, s.p2);
        const double shift = problem.share * (logsumexp(s.p1, n) - logsumexp(s.p2, m));
        for (int i = 0; i < pad(n); i += LANES) store(s.x + i, load(s.new_x + i) + shift);
        for (int j = 0; j < pad(m); j += LANES) store(s.y + j, load(s.new_y + j) - shift);
    }
    for (int i = 0; i < pad(n); i += LANES) {
        store(s.round.phi + i, load(s.x + i));
        store(s.p1 + i, load(s.p1 + i) - (load(s.new_x + i) - load(s.last_x + i)));
    }
    softmax(s.p1, n, s.p1);
    softmax(s.p2, m, s.p2);
    std::memcpy(s.round.gamma, s.y, sizeof(double) * pad(m));
    finish_round(problem, config, memory);
}

// Rounds from memory.phi, memory.gamma until the residual is at most `tolerance`; returns it. A round that is not finite
// even in the log domain is undone and ends the rounds.
static double run_rounds(
    const LinearProblem& problem, StabilizedKernel& kernel, const Config& config, double tolerance, double max_rounds,
    SinkhornMemory& memory
) {
    const std::size_t phi_bytes = sizeof(double) * pad(problem.n), gamma_bytes = sizeof(double) * pad(problem.m);
    const bool is_stabilized = config.uses_log_domain == 0.0;
    double residual = 1.0, max_residual = INFINITE;
    if (is_stabilized) center_kernel(problem, memory.gamma, kernel);
    std::memcpy(memory.next_gamma, memory.gamma, gamma_bytes);
    for (double n_rounds = 1.0;; n_rounds += 1.0) {
        if (is_stabilized) {
            if (!is_near_center(kernel, memory.next_gamma, problem.m, config))
                center_kernel(problem, memory.next_gamma, kernel);
            iterate_stabilized(problem, kernel, config, memory);
        }
        if (!is_stabilized || !std::isfinite(memory.round.residual)) iterate_in_log_domain(problem, config, memory);
        const double new_residual = memory.round.residual;
        if (new_residual > max_residual) {
            // The extrapolation raised the residual: it is undone, and the next round starts from before it.
            std::memcpy(memory.next_gamma, memory.gamma, gamma_bytes);
            max_residual = INFINITE;
        } else if (!std::isfinite(new_residual)) {
            return residual;
        } else {
            std::memcpy(memory.phi, memory.round.phi, phi_bytes);
            std::memcpy(memory.gamma, memory.round.gamma, gamma_bytes);
            std::memcpy(memory.next_gamma, memory.round.extrapolated_gamma, gamma_bytes);
            residual = max_residual = new_residual;
        }
        if (residual <= tolerance || n_rounds >= max_rounds) return residual;
    }
}

// The log mass of a plan before it is divided by its mass, and its negative entropy Σ p log p after that.
struct PlanSums {
    double log_mass, neg_entropy;
};

// phi = −damping·row_logsumexp(gamma) and the plan a_i b_j exp(phi_i + gamma_j − cost_ij/eps) of unit mass. memory.gamma
// is given, memory.phi is set. The logarithms of the entries are their exponents, so that none is computed.
static PlanSums compute_plan(const LinearProblem& problem, SinkhornMemory& memory, Matrix plan) {
    const int n = problem.n, m = problem.m;
    double *shift = memory.v, *largest = memory.u, *log_p1 = memory.p1, *log_factor = memory.x;
    for (int j = 0; j < pad(m); j += LANES) store(shift + j, load(problem.log_b + j) + load(memory.gamma + j));
    for (int i = 0; i < n; ++i) {
        const double* row = problem.log_kernel.row(i);
        Vec row_largest = broadcast(-INFINITE), total = {};
        for (int j = 0; j < pad(m); j += LANES) row_largest = max(load(row + j) + load(shift + j), row_largest);
        largest[i] = finite_or_zero(max_lanes(row_largest));
        for (int j = 0; j < pad(m); j += LANES) {
            const Vec entry = exp(load(row + j) + load(shift + j) - largest[i]);
            store(plan.row(i) + j, entry);
            total += entry;
        }
        memory.sums_a[i] = sum_lanes(total);
    }
    for (int i = n; i < pad(n); ++i) largest[i] = 0.0, memory.sums_a[i] = 1.0;
    for (int i = 0; i < pad(n); i += LANES)
        store(memory.row_lse + i, load(largest + i) + log(load(memory.sums_a + i)));
    update_side_in_log_domain(memory.row_lse, problem.log_a, problem.damping_a, n, memory.phi, log_p1);
    const double log_mass = logsumexp(log_p1, n);
    for (int i = 0; i < pad(n); i += LANES) {
        Vec exponent = load(problem.log_a + i) + load(memory.phi + i) + load(largest + i) - log_mass;
        exponent = load(memory.row_lse + i) == -INFINITE ? broadcast(-INFINITE) : exponent;
        // A plan without any mass is no plan.
        exponent = log_mass == -INFINITE ? broadcast(NOT_A_NUMBER) : exponent;
        store(log_factor + i, exponent - load(largest + i));
        store(memory.new_x + i, exp(exponent));
    }
    Vec neg_entropy = {};
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < pad(m); j += LANES) {
            const Vec p = load(plan.row(i) + j) * memory.new_x[i];
            const Vec log_p = load(problem.log_kernel.row(i) + j) + load(shift + j) + log_factor[i];
            neg_entropy += p == 0.0 ? Vec{} : p * log_p;
            store(plan.row(i) + j, p);
        }
    return {log_mass, sum_lanes(neg_entropy)};
}
