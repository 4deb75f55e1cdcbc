// Sinkhorn for the linear problems of a batch, the counterpart of `Sinkhorn.__call__` in solvers/sinkhorn.py.

// Solve one item: potentials, plan, log mass and residual.
static void solve_linear_item(const LinearRun& run, std::int64_t i, Arena& arena) {
    const int n = static_cast<int>(run.n), m = static_cast<int>(run.m);
    const LinearParameters& parameters = run.parameters[i];
    arena.reset();
    LinearMemory memory;
    memory.take(n, m, arena);
    const double* log_a = pack_log_weights(run.log_a, i, n, arena);
    const double* log_b = pack_log_weights(run.log_b, i, m, arena);
    const Matrix plan = arena.take_matrix(n, m);
    const double* cost = run.cost.data + i * run.cost.item;
    for (int row = 0; row < n; ++row)
        for (int col = 0; col < pad(m); ++col)
            memory.log_kernel.row(row)[col] =
                col < m ? cost[row * run.cost.row + col * run.cost.col] / -parameters.eps : 0.0;
    const LinearProblem problem = make_linear_problem(
        n, m, log_a, log_b, memory.log_kernel, parameters.eps, parameters.rho_a, parameters.rho_b, *run.config
    );
    SinkhornMemory& s = memory.sinkhorn;
    double *f = run.f + i * n, *g = run.g + i * m;
    for (int k = 0; k < pad(n); ++k) s.phi[k] = k < n ? f[k] / parameters.eps : 0.0;
    for (int k = 0; k < pad(m); ++k) s.gamma[k] = k < m ? g[k] / parameters.eps : 0.0;
    run.residual[i] =
        run_rounds(problem, memory.kernel, *run.config, parameters.tolerance, parameters.max_rounds, s);
    run.log_mass[i] = compute_plan(problem, s, plan).log_mass;
    for (int k = 0; k < n; ++k) f[k] = s.phi[k] * parameters.eps;
    for (int k = 0; k < m; ++k) g[k] = s.gamma[k] * parameters.eps;
    for (int row = 0; row < n; ++row)
        std::memcpy(run.plan + (i * n + row) * m, plan.row(row), sizeof(double) * m);
}

// Take items from a common counter until none is left.
static void solve_linear_items(const LinearRun& run, std::atomic<std::int64_t>& next) {
    const int n = static_cast<int>(run.n), m = static_cast<int>(run.m);
    Arena arena(LinearMemory::size(n, m) + std::size_t(n) * pad(m) + pad(n) + pad(m) + 64 * PADDING);
    for (std::int64_t i = next++; i < run.batch; i = next++) solve_linear_item(run, i, arena);
}
