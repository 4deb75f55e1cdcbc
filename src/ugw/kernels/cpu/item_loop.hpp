// The steps of one item within one call.

// Is the item still running, with steps left in this call?
static bool is_left(const Run& run, std::int64_t i) {
    return run.status[i] == static_cast<std::int64_t>(run.config->RUNNING) && run.n_iter[i] < run.last_step;
}

// Move the matrices of the last step, `last_step`, to position 0. The cost of the next step is the local cost of the last
// plan where none is extrapolated.
static void rotate_steps(const Item& item, std::int64_t last_step) {
    const std::int64_t size = item.rows * item.stride, shift = (last_step - item.first_step) % 3;
    if (item.inputs != nullptr && !item.extrapolates())
        copy(item.output(last_step), item.n, item.m, item.input(last_step));
    for (double* matrices : {item.plans, item.outputs, item.inputs})
        if (matrices != nullptr) std::rotate(matrices, matrices + shift * size, matrices + 3 * size);
}

// The objective of the plan of the last step, with the mass in the result, and of the plan before.
static FinalValues final_values(const Item& item, std::int64_t last_step) {
    const PlanNumbers &p = item.iterate->state, &q = item.iterate->previous_state;
    const double log_mass = p.reported_log_mass;
    FinalValues values = objective_terms(item, p, log_mass, p, log_mass, p.distortion);
    const double distortion = dot(item.output(last_step), item.plan(last_step - 1), item.n, item.m);
    values.relaxed = objective(item, q, q.log_mass, p, log_mass, distortion);
    return values;
}

// Run steps until the item ends, has made the last step of this call, or the time is over.
static void run_item(const Run& run, std::int64_t i, Arena& arena, std::chrono::steady_clock::time_point deadline) {
    const Config& config = *run.config;
    const int running = static_cast<int>(config.RUNNING), non_finite = static_cast<int>(config.NON_FINITE);
    arena.reset();
    const Item item = read_item(run, i, arena);
    StepMemory memory;
    memory.take(item.n, item.m, arena);
    if (item.is_conic) memory.conic.take(item.n, item.m, item.conic.kernel.rank, arena);
    while (is_left(run, i)) {
        const std::int64_t k = run.n_iter[i] + 1;
        HistoryRow row;
        int status = advance(item, k, memory, row);
        if (status != non_finite) {
            run.n_iter[i] = k;
            if (run.history != nullptr) run.history[i * run.history_capacity + k - 1] = row;
            // A comparison of doubles: a limit beyond 64 bits is no integer.
            if (status == running && static_cast<double>(k) >= config.max_iter) status = static_cast<int>(config.MAX_ITER);
        }
        run.status[i] = status;
        if (std::chrono::steady_clock::now() >= deadline) break;
    }
    if (run.values != nullptr) run.values[i] = final_values(item, run.n_iter[i]);
    rotate_steps(item, run.n_iter[i]);
}

// Take items from a common counter until none is left or the time is over.
static void run_items(const Run& run, std::atomic<std::int64_t>& next, std::chrono::steady_clock::time_point deadline) {
    std::size_t memory = 0;
    for (std::int64_t i = 0; i < run.batch; ++i) {
        const int n = static_cast<int>(run.sizes[2 * i]), m = static_cast<int>(run.sizes[2 * i + 1]);
        const std::size_t conic = run.conic == nullptr ? 0 : ConicMemory::size(n, m, run.conic->kernels[i].rank);
        memory = std::max(memory, item_memory(n, m) + StepMemory::size(n, m) + conic);
    }
    Arena arena(memory + 64 * PADDING);
    for (std::int64_t i = next++; i < run.batch; i = next++) {
        if (is_left(run, i)) run_item(run, i, arena, deadline);
        if (std::chrono::steady_clock::now() >= deadline) return;
    }
}
