// The search for initial plans of one item, the counterpart of initializers/coarse.py: candidates between clusters of the
// points, successive halving there, prolongation to all points, successive halving there.

// -- the run of one candidate -------------------------------------------------------------------------------------------

// Divide a plan by its mass; false if the mass is not positive and finite.
static bool normalize(Matrix plan, int n, int m) {
    double total = 0.0;
    for (int i = 0; i < n; ++i) total += sum(plan.row(i), m);
    if (!(total > 0.0) || !std::isfinite(total)) return false;
    const double factor = 1.0 / total;
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < pad(m); j += LANES) store(plan.row(i) + j, factor * load(plan.row(i) + j));
    return true;
}

// The work arrays that all candidates of a level share.
struct CandidateMemory {
    StepMemory step;
    IterateNumbers iterate;
    Item item;
    std::int64_t n_steps = 0;  // of all runs so far

    void take(const Level& level, Arena& arena) {
        const int n = level.n, m = level.m;
        step.take(n, m, arena);
        item.rows = n;
        item.stride = pad(m);
        for (double** matrices : {&item.plans, &item.outputs, &item.inputs})
            *matrices = arena.take(3 * std::size_t(n) * pad(m));
        item.f = arena.take(pad(n));
        item.g = arena.take(pad(m));
    }
    static std::size_t size(int n, int m) {
        return StepMemory::size(n, m) + 9 * std::size_t(n) * pad(m) + pad(n) + pad(m);
    }
};

// The unit of differences of objectives: the typical cost times the squared mass m(a) m(b).
static double objective_scale(const Level& level) {
    return level.cost_scale * std::exp(level.parameters.log_mass_a + level.parameters.log_mass_b);
}

// The objective of a plan with its reported mass, plus the largest L1 error of a hard marginal times `objective_scale`.
static double penalized_objective(const Level& level, const Item& item, const PlanNumbers& state, StateMemory& memory) {
    const Parameters& p = *item.parameters;
    const double log_mass = state.reported_log_mass;
    const double value = objective(item, state, log_mass, state, log_mass, state.distortion);
    double error_a = 0.0, error_b = 0.0;
    if (p.is_hard_a != 0.0)
        for (int i = 0; i < item.n; ++i) error_a += std::fabs(memory.p1[i] - item.a[i]);
    if (p.is_hard_b != 0.0)
        for (int j = 0; j < item.m; ++j) error_b += std::fabs(memory.p2[j] - item.b[j]);
    return value + objective_scale(level) * std::max(error_a, error_b);
}

// Make at most `max_steps` steps from `plan`, which is replaced by the last plan, of mass 1; returns the penalized
// objective of that plan, +inf if it is not finite.
static double run_candidate(
    const Level& level, const Config& config, int max_steps, CandidateMemory& memory, Matrix plan
) {
    const int n = level.n, m = level.m;
    Parameters parameters = level.parameters;
    Item& item = memory.item;
    item.config = &config;
    item.parameters = &parameters;
    item.n = n, item.m = m;
    item.dx = level.dx, item.dy = level.dy, item.cost = level.cost;
    item.log_a = level.log_a, item.log_b = level.log_b, item.a = level.a, item.b = level.b;
    item.row_weights = level.row_weights;
    item.iterate = &memory.iterate;
    if (!normalize(plan, n, m)) return INFINITE;
    copy(plan, n, m, item.plan(0));
    IterateNumbers& iterate = memory.iterate;
    iterate.state = state_of_plan(item, item.plan(0), neg_entropy(plan, n, m), memory.step.state, item.output(0));
    std::int64_t k = 0;
    if (max_steps > 0) {
        const double weight = item.has_linear_cost() ? linear_weight(item, iterate.state.log_mass) : 0.0;
        const double mean_cost = iterate.state.distortion + weight * iterate.state.linear;
        set_run_parameters(level, config, cost_rms(level, item.output(0), mean_cost, item.cost, weight), parameters);
        copy(item.output(0), n, m, item.input(0));
        iterate = first_iterate(config, parameters, iterate.state);
        std::fill(item.f, item.f + pad(n), 0.0);
        std::fill(item.g, item.g + pad(m), 0.0);
        const int running = static_cast<int>(config.RUNNING), non_finite = static_cast<int>(config.NON_FINITE);
        HistoryRow row;
        for (int status = running; k < max_steps && status == running;) {
            status = advance(item, k + 1, memory.step, row);
            if (status != non_finite) ++k;
        }
        memory.n_steps += k;
        copy(item.plan(k), n, m, plan);
        if (!normalize(plan, n, m)) return INFINITE;
    }
    sum_sides(plan, item.n, item.m, memory.step.state.p1, memory.step.state.p2);
    const double value = penalized_objective(level, item, iterate.state, memory.step.state);
    return std::isfinite(value) ? value : INFINITE;
}

// -- successive halving -------------------------------------------------------------------------------------------------

// The candidates of a level: plans, their penalized objectives, and the indices of those that are left, best first.
struct Candidates {
    std::vector<Matrix> plans;
    std::vector<double> values;
    std::vector<int> order;

    void add(Matrix plan) {
        order.push_back(static_cast<int>(plans.size()));
        plans.push_back(plan);
        values.push_back(INFINITE);
    }
};

// Keep the survivors of a round, best first: candidates of lowest objective that differ by `min_candidate_distance` or
// more in L1 from better ones and are at most `max_gap` above the best. Of objectives that tie, the first in order is better.
static void select_survivors(
    const Level& level, SearchRound round, const SearchConfig& search, Candidates& candidates
) {
    const double scale = objective_scale(level);
    std::vector<int> left = candidates.order, chosen;
    double highest = INFINITE;
    while (!left.empty() && static_cast<double>(chosen.size()) < round.n_survivors) {
        double lowest = INFINITE;
        for (const int k : left) lowest = std::min(lowest, candidates.values[k]);
        if (!chosen.empty() && (lowest == INFINITE || lowest > highest)) break;
        const double tie = lowest + search.candidate_tie * scale;
        const int best = *std::find_if(left.begin(), left.end(), [&](int k) { return candidates.values[k] <= tie; });
        if (chosen.empty()) highest = lowest + round.max_gap * scale;
        chosen.push_back(best);
        left.erase(
            std::remove_if(left.begin(), left.end(), [&](int k) {
                const Matrix plan = candidates.plans[k], better = candidates.plans[best];
                return k == best || l1_distance(plan, better, level.n, level.m) < search.min_candidate_distance;
            }),
            left.end()
        );
    }
    candidates.order = chosen;
}

// Successive halving: each round makes steps of all candidates that are left and keeps the survivors; one left ends it.
static void run_rounds_of_candidates(
    const Level& level, const Config& config, const SearchConfig& search, const SearchRound* rounds,
    std::int64_t n_rounds, CandidateMemory& memory, Candidates& candidates
) {
    for (std::int64_t r = 0; r < n_rounds && (r == 0 || candidates.order.size() > 1); ++r) {
        const int max_steps = static_cast<int>(rounds[r].max_steps);
        for (const int k : candidates.order)
            candidates.values[k] = run_candidate(level, config, max_steps, memory, candidates.plans[k]);
        select_survivors(level, rounds[r], search, candidates);
    }
}

// -- clusters -----------------------------------------------------------------------------------------------------------

// Points assigned to the nearest of `count` centers; labels: cluster of each point; weights: of the clusters; distances:
// (n, count), from points to clusters, means over the points of a cluster; between: (count, count), the same between
// clusters; is_exact: does every point of positive weight coincide with its center?
struct Clusters {
    int count;
    std::vector<int> labels;
    double* weights;
    Matrix distances, between;
    bool is_exact;

    // The share of the weight of its cluster that a point has.
    double share(int i, const double* w) const { return weights[labels[i]] > 0.0 ? w[i] / weights[labels[i]] : 0.0; }
};

// The eccentricity Σ_j D_ij w_j of point i.
static double eccentricity(Matrix d, const double* w, int n, int i) {
    Vec total = {};
    for (int j = 0; j < pad(n); j += LANES) total += load(d.row(i) + j) * load(w + j);
    return sum_lanes(total);
}

// Eccentricities of all points as whole multiples of a small step, so that those that differ by rounding alone tie.
static std::vector<double> rounded_eccentricities(Matrix d, const double* w, int n, double step_share) {
    std::vector<double> values(n);
    double largest = 0.0;
    for (int i = 0; i < n; ++i) {
        values[i] = eccentricity(d, w, n, i);
        largest = std::max(largest, std::fabs(values[i]));
    }
    const double step = std::max(step_share * largest, std::numeric_limits<double>::min());
    for (double& value : values) value = std::nearbyint(value / step);
    return values;
}

// Points in the order of their eccentricity, the largest first, those of weight 0 last.
static std::vector<int> eccentricity_order(Matrix d, const double* w, int n, double step_share) {
    const std::vector<double> values = rounded_eccentricities(d, w, n, step_share);
    std::vector<int> order(n);
    for (int i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](int i, int j) {
        if ((w[i] > 0.0) != (w[j] > 0.0)) return w[i] > 0.0;
        return w[i] > 0.0 && values[i] > values[j];
    });
    return order;
}

// The most eccentric point, then each time the one farthest from all chosen before, among points of positive weight.
static std::vector<int> farthest_centers(Matrix d, const double* w, int n, int count, double step_share) {
    const std::vector<double> values = rounded_eccentricities(d, w, n, step_share);
    int next = -1;
    for (int i = 0; i < n; ++i)
        if (w[i] > 0.0 && (next < 0 || values[i] > values[next])) next = i;
    std::vector<int> centers{std::max(next, 0)};
    std::vector<double> nearest(n);
    auto distance = [&](int i, int center) { return i == center ? 0.0 : d.row(i)[center]; };
    for (int i = 0; i < n; ++i) nearest[i] = w[i] > 0.0 ? distance(i, centers[0]) : -INFINITE;
    while (static_cast<int>(centers.size()) < count) {
        centers.push_back(static_cast<int>(std::max_element(nearest.begin(), nearest.end()) - nearest.begin()));
        for (int i = 0; i < n; ++i) nearest[i] = std::min(nearest[i], distance(i, centers.back()));
    }
    return centers;
}

// Clusters of n points around at most `count` farthest points; distances to a cluster are means over its points.
static Clusters cluster_points(Matrix d, const double* w, int n, int count, double step_share, Arena& arena) {
    Clusters clusters;
    const int k = clusters.count = std::min(count, n);
    const std::vector<int> centers = farthest_centers(d, w, n, k, step_share);
    clusters.labels.resize(n);
    clusters.weights = arena.take(pad(k));
    clusters.distances = arena.take_matrix(n, k);
    clusters.between = arena.take_matrix(k, k);
    clusters.is_exact = true;
    std::fill(clusters.weights, clusters.weights + pad(k), 0.0);
    for (int i = 0; i < n; ++i) {
        int label = 0;
        double nearest = INFINITE;
        for (int c = 0; c < k; ++c) {
            const double distance = i == centers[c] ? 0.0 : d.row(i)[centers[c]];
            if (distance < nearest) nearest = distance, label = c;
        }
        clusters.labels[i] = label;
        clusters.weights[label] += w[i];
        clusters.is_exact &= !(w[i] > 0.0) || nearest == 0.0;
    }
    for (int i = 0; i < n; ++i) {
        double* row = clusters.distances.row(i);
        std::fill(row, row + pad(k), 0.0);
        for (int j = 0; j < n; ++j) row[clusters.labels[j]] += clusters.share(j, w) * d.row(i)[j];
    }
    for (int c = 0; c < k; ++c) std::fill(clusters.between.row(c), clusters.between.row(c) + pad(k), 0.0);
    for (int i = 0; i < n; ++i) {
        const double share = clusters.share(i, w);
        double* row = clusters.between.row(clusters.labels[i]);
        for (int c = 0; c < k; ++c) row[c] += share * clusters.distances.row(i)[c];
    }
    for (int c = 0; c < k; ++c)
        for (int e = 0; e < c; ++e)
            clusters.between.row(c)[e] = clusters.between.row(e)[c] =
                0.5 * (clusters.between.row(c)[e] + clusters.between.row(e)[c]);
    return clusters;
}

// Logarithms of `count` weights, −inf for 0 and in the padding.
static double* logarithms(const double* w, int count, Arena& arena) {
    double* logs = arena.take(pad(count));
    for (int j = 0; j < pad(count); ++j) logs[j] = j < count && w[j] > 0.0 ? std::log(w[j]) : -INFINITE;
    return logs;
}

// The problem of a level between the clusters of its points, without the fields that `finish_level` sets.
static Level aggregate(const Level& level, const Clusters& x, const Clusters& y, Arena& arena) {
    Level small;
    small.n = x.count, small.m = y.count;
    small.dx = x.between, small.dy = y.between;
    small.a = x.weights, small.b = y.weights;
    small.log_a = logarithms(x.weights, x.count, arena);
    small.log_b = logarithms(y.weights, y.count, arena);
    small.row_weights = small.a;
    small.cost = {nullptr, 0};
    if (level.cost.data == nullptr) return small;
    small.cost = arena.take_matrix(x.count, y.count);
    for (int c = 0; c < x.count; ++c) std::fill(small.cost.row(c), small.cost.row(c) + pad(y.count), 0.0);
    for (int i = 0; i < level.n; ++i) {
        const double share = x.share(i, level.a);
        for (int j = 0; j < level.m; ++j)
            small.cost.row(x.labels[i])[y.labels[j]] += share * y.share(j, level.b) * level.cost.row(i)[j];
    }
    return small;
}

// -- candidates ---------------------------------------------------------------------------------------------------------

// The plan a⊗b.
static Matrix product_plan(const Level& level, Arena& arena) {
    const Matrix plan = arena.take_matrix(level.n, level.m);
    for (int i = 0; i < level.n; ++i)
        for (int j = 0; j < pad(level.m); j += LANES) store(plan.row(i) + j, level.a[i] * load(level.b + j));
    return plan;
}

// Replace a cost (n, m) by the plan of mass 1 of the entropic transport problem with this cost and the rhos of the level,
// as `transport_plan` in initializers/plans.py does.
static void transport_plan(
    const Level& level, const Config& config, const SearchConfig& search, LinearMemory& memory, Matrix cost
) {
    const int n = level.n, m = level.m;
    double mean = 0.0;
    for (int i = 0; i < n; ++i) {
        Vec total = {};
        for (int j = 0; j < pad(m); j += LANES) total += load(cost.row(i) + j) * load(level.b + j);
        mean += level.a[i] * sum_lanes(total);
    }
    SinkhornMemory& s = memory.sinkhorn;
    std::fill(s.phi, s.phi + pad(n), 0.0);
    std::fill(s.gamma, s.gamma + pad(m), 0.0);
    double last_eps = 1.0;
    LinearProblem problem;
    for (const double share : {search.first_transport_eps_share, search.last_transport_eps_share}) {
        const double eps = std::max(level.eps, share * (mean > 0.0 ? mean : 1.0));
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < pad(m); j += LANES)
                store(memory.log_kernel.row(i) + j, (load(cost.row(i) + j) - mean) / -eps);
        problem = make_linear_problem(
            n, m, level.log_a, level.log_b, memory.log_kernel, eps, level.parameters.rho_a, level.parameters.rho_b, config
        );
        for (int i = 0; i < pad(n); ++i) s.phi[i] *= last_eps / eps;
        for (int j = 0; j < pad(m); ++j) s.gamma[j] *= last_eps / eps;
        last_eps = eps;
        const double max_rounds = std::ceil(search.transport_max_iter / config.iterations_per_check);
        run_rounds(problem, memory.kernel, config, search.transport_tol, max_rounds, s);
    }
    compute_plan(problem, s, cost);
}

// The transport plan between eccentricities D w, for the cost |ecc_X(i) − ecc_Y(j)|².
static Matrix first_lower_bound_plan(
    const Level& level, const Config& config, const SearchConfig& search, LinearMemory& memory, Arena& arena
) {
    const Matrix plan = arena.take_matrix(level.n, level.m);
    std::vector<double> ecc_y(pad(level.m), 0.0);
    for (int j = 0; j < level.m; ++j) ecc_y[j] = eccentricity(level.dy, level.b, level.m, j);
    for (int i = 0; i < level.n; ++i) {
        const double ecc = eccentricity(level.dx, level.a, level.n, i);
        for (int j = 0; j < pad(level.m); ++j) plan.row(i)[j] = j < level.m ? (ecc - ecc_y[j]) * (ecc - ecc_y[j]) : 0.0;
    }
    transport_plan(level, config, search, memory, plan);
    return plan;
}

// The points of one space in the order in which random numbers select them, their eccentricities, and how many of them have
// positive weight.
struct DrawingOrder {
    std::vector<int> order;
    std::vector<double> eccentricities;
    int n_present;
};

static DrawingOrder drawing_order(Matrix d, const double* w, int n, double step_share) {
    DrawingOrder result{eccentricity_order(d, w, n, step_share), std::vector<double>(n), 0};
    for (int i = 0; i < n; ++i) {
        result.eccentricities[i] = eccentricity(d, w, n, i);
        result.n_present += w[i] > 0.0;
    }
    return result;
}

// The logarithm (n, m) of a small perturbation that has no symmetry: inner products of normal vectors, one per point.
// run.normals: (2, max points, factors); row role_x has the vectors of the first space, in the order of eccentricity.
static Matrix symmetry_breaking_noise(
    const Level& level, const SearchConfig& search, const SearchRun& run, const DrawingOrder& x, const DrawingOrder& y,
    int role_x, Arena& arena
) {
    const Matrix noise = arena.take_matrix(level.n, level.m);
    const int n_factors = static_cast<int>(search.n_noise_factors);
    const double scale = search.symmetry_breaking_noise / std::sqrt(search.n_noise_factors);
    auto vectors = [&](int role) { return run.normals + role * run.max_points * n_factors; };
    for (int i = 0; i < level.n; ++i) std::fill(noise.row(i), noise.row(i) + pad(level.m), 0.0);
    for (int i = 0; i < level.n; ++i)
        for (int j = 0; j < level.m; ++j) {
            const double *u = vectors(role_x) + i * n_factors, *v = vectors(1 - role_x) + j * n_factors;
            double product = 0.0;
            for (int t = 0; t < n_factors; ++t) product += u[t] * v[t];
            noise.row(x.order[i])[y.order[j]] = scale * product;
        }
    return noise;
}

// Multiply a plan by exp(noise) and divide it by its mass.
static void break_symmetries(Matrix plan, Matrix noise, int n, int m) {
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < pad(m); j += LANES)
            store(plan.row(i) + j, load(plan.row(i) + j) * exp(load(noise.row(i) + j)));
    normalize(plan, n, m);
}

// What the random candidates of a level share: orders of the points, width of the anchor kernel, perturbation.
struct RandomNumbers {
    DrawingOrder x, y;
    int role_x;  // 0 if the first space takes the first random numbers: the one with the larger mean squared distance
    double width;
    Matrix noise;
};

static RandomNumbers draw_numbers(const Level& level, const SearchConfig& search, const SearchRun& run, Arena& arena) {
    RandomNumbers numbers;
    numbers.x = drawing_order(level.dx, level.a, level.n, search.eccentricity_step);
    numbers.y = drawing_order(level.dy, level.b, level.m, search.eccentricity_step);
    const double square_x = distance_moments(level.dx, level.a, level.n).second;
    const double square_y = distance_moments(level.dy, level.b, level.m).second;
    numbers.role_x = square_x < square_y ? 1 : 0;
    const double scale = square_x + square_y;
    numbers.width = search.anchor_width * (scale > 0.0 ? scale : 1.0);
    numbers.noise = symmetry_breaking_noise(level, search, run, numbers.x, numbers.y, numbers.role_x, arena);
    return numbers;
}

// Pairs of anchors (i_k, j_k) that random plans match.
using AnchorPairs = std::vector<std::pair<int, int>>;

// How much the distances between the anchors and their eccentricities differ in the two spaces, as a share of the squared
// distances, in whole steps; +inf if the anchors of both spaces are single points.
static double anchor_mismatch(const Level& level, const RandomNumbers& numbers, const AnchorPairs& pairs, double step) {
    double mismatch = 0.0, squares = 0.0;
    for (std::size_t k = 0; k < pairs.size(); ++k) {
        const auto [x, y] = pairs[k];
        const double eccentricities = numbers.x.eccentricities[x] - numbers.y.eccentricities[y];
        mismatch += eccentricities * eccentricities;
        for (std::size_t l = 0; l < k; ++l) {
            const double far_x = level.dx.row(x)[pairs[l].first], far_y = level.dy.row(y)[pairs[l].second];
            mismatch += (far_x - far_y) * (far_x - far_y);
            squares += far_x * far_x + far_y * far_y;
        }
    }
    return squares > 0.0 ? std::nearbyint(mismatch / squares / step) : INFINITE;
}

// The anchors of the first of several proposals with the least mismatch. draws: (proposals, anchors, 2), uniform numbers.
static AnchorPairs matching_anchors(
    const Level& level, const RandomNumbers& numbers, const SearchConfig& search, const double* draws
) {
    const int n_anchors = static_cast<int>(search.n_anchor_pairs);
    AnchorPairs best(n_anchors), pairs(n_anchors);
    double least = INFINITE;
    for (int t = 0; t < static_cast<int>(search.n_anchor_proposals); ++t) {
        for (int k = 0; k < n_anchors; ++k, draws += 2)
            pairs[k] = {numbers.x.order[static_cast<int>(draws[numbers.role_x] * numbers.x.n_present)],
                        numbers.y.order[static_cast<int>(draws[1 - numbers.role_x] * numbers.y.n_present)]};
        const double mismatch = anchor_mismatch(level, numbers, pairs, search.anchor_mismatch_step);
        if (t == 0 || mismatch < least) least = mismatch, best = pairs;
    }
    return best;
}

// A plan that matches points with similar distances to anchors: proportional to a⊗b·exp(−Σ_k (Dx[:, i_k] − Dy[:, j_k])² /
// width).
static Matrix random_anchor_plan(const Level& level, const AnchorPairs& pairs, double width, Arena& arena) {
    const Matrix plan = arena.take_matrix(level.n, level.m);
    for (int i = 0; i < level.n; ++i) std::fill(plan.row(i), plan.row(i) + pad(level.m), 0.0);
    for (const auto& [anchor_x, anchor_y] : pairs) {
        const double* far_y = level.dy.row(anchor_y);
        for (int i = 0; i < level.n; ++i) {
            const double far_x = level.dx.row(anchor_x)[i];
            for (int j = 0; j < pad(level.m); j += LANES) {
                const Vec difference = far_x - load(far_y + j);
                store(plan.row(i) + j, load(plan.row(i) + j) + difference * difference);
            }
        }
    }
    double largest = -INFINITE;
    for (int i = 0; i < level.n; ++i)
        for (int j = 0; j < pad(level.m); j += LANES) {
            const Vec exponent = level.log_a[i] + load(level.log_b + j) - load(plan.row(i) + j) / width;
            store(plan.row(i) + j, exponent);
            largest = std::max(largest, max_lanes(exponent));
        }
    for (int i = 0; i < level.n; ++i)
        for (int j = 0; j < pad(level.m); j += LANES)
            store(plan.row(i) + j, exp(load(plan.row(i) + j) - finite_or_zero(largest)));
    return plan;
}

// How many random candidates are tried: the more, the smaller eps, because it leaves more local minima.
static int count_random_candidates(const Level& level, const SearchConfig& search) {
    const double count = std::ceil(search.random_candidates_times_eps_share / (level.eps / level.distortion_scale));
    // Also the least number where the scale is beyond the range and the count is not a number.
    const double at_least = count > search.min_random_candidates ? count : search.min_random_candidates;
    return static_cast<int>(std::min(at_least, search.n_random_candidates));
}

// The product plan, the one of the first lower bound and random ones, without exact symmetries.
static Candidates make_candidates(
    const Level& level, const Config& config, const SearchConfig& search, const SearchRun& run, LinearMemory& memory,
    Arena& arena
) {
    const RandomNumbers numbers = draw_numbers(level, search, run, arena);
    Candidates candidates;
    candidates.add(product_plan(level, arena));
    candidates.add(first_lower_bound_plan(level, config, search, memory, arena));
    const int n_draws = 2 * static_cast<int>(search.n_anchor_proposals * search.n_anchor_pairs);
    for (int k = 0; k < count_random_candidates(level, search); ++k) {
        const AnchorPairs pairs = matching_anchors(level, numbers, search, run.uniforms + k * n_draws);
        candidates.add(random_anchor_plan(level, pairs, numbers.width, arena));
    }
    for (const Matrix& plan : candidates.plans) break_symmetries(plan, numbers.noise, level.n, level.m);
    return candidates;
}

// -- prolongation -------------------------------------------------------------------------------------------------------

// The prolongation of a plan between clusters to all points: the transport plan for the cost ∫ (Dx[:, r] − Dy[:, s])²
// dplan(r, s), or the plan itself where every cluster is a single point. transposed_y: (l, m), transposed y.distances.
static Matrix prolongate(
    const Level& level, const Clusters& x, const Clusters& y, Matrix transposed_y, Matrix coarse, const Config& config,
    const SearchConfig& search, LinearMemory& memory, Arena& arena
) {
    const int n = level.n, m = level.m, k = x.count, l = y.count;
    const Matrix plan = arena.take_matrix(n, m);
    if (x.is_exact && y.is_exact) {
        for (int i = 0; i < n; ++i) {
            const double share = x.share(i, level.a);
            std::fill(plan.row(i), plan.row(i) + pad(m), 0.0);
            for (int j = 0; j < m; ++j)
                plan.row(i)[j] = share * y.share(j, level.b) * coarse.row(x.labels[i])[y.labels[j]];
        }
        return plan;
    }
    std::vector<double> p1(pad(k), 0.0), p2(pad(l), 0.0), col(pad(m), 0.0);
    for (int c = 0; c < k; ++c) {
        p1[c] = sum(coarse.row(c), l);
        for (int e = 0; e < l; ++e) p2[e] += coarse.row(c)[e];
    }
    const Matrix matched = memory.kernel.matrix;  // (n, l); the linear problem does not use it yet
    multiply(x.distances, n, k, coarse, l, matched);
    multiply(matched, n, l, transposed_y, m, plan);
    for (int j = 0; j < m; ++j)
        for (int e = 0; e < l; ++e) col[j] += y.distances.row(j)[e] * y.distances.row(j)[e] * p2[e];
    for (int i = 0; i < n; ++i) {
        double row = 0.0;
        for (int c = 0; c < k; ++c) row += x.distances.row(i)[c] * x.distances.row(i)[c] * p1[c];
        for (int j = 0; j < pad(m); j += LANES)
            store(plan.row(i) + j, row + load(col.data() + j) - 2.0 * load(plan.row(i) + j));
    }
    transport_plan(level, config, search, memory, plan);
    return plan;
}

// -- the search of one item ---------------------------------------------------------------------------------------------

// The number of doubles that `search_item` takes from its arena.
static std::size_t search_memory(const SearchRun& run, int n, int m) {
    const SearchConfig& search = *run.search;
    const int k = std::min(n, static_cast<int>(search.n_coarse_clusters));
    const int l = std::min(m, static_cast<int>(search.n_coarse_clusters));
    const std::size_t n_candidates = static_cast<std::size_t>(search.n_random_candidates) + 4;
    std::size_t n_survivors = 2;
    for (int r = 0; r < run.n_coarse_rounds; ++r) n_survivors = static_cast<std::size_t>(run.rounds[r].n_survivors) + 2;
    const std::size_t coarse = n_candidates * k * pad(l) + CandidateMemory::size(k, l) + 2 * (pad(k) + pad(l)) +
                               std::size_t(n + k) * pad(k) + std::size_t(m + l) * pad(l) + std::size_t(k) * pad(l) +
                               std::size_t(l) * pad(m);
    return item_memory(n, m) + coarse + (n_survivors + 1) * std::size_t(n) * pad(m) + CandidateMemory::size(n, m) +
           64 * PADDING * (n_survivors + 16);
}

// Search initial plans of item i and write the `count` best; if fewer are left, the first is repeated with value +inf.
static void search_item(const SearchRun& run, std::int64_t i) {
    const SearchConfig& search = *run.search;
    const Config& config = *run.config;
    Arena arena(search_memory(run, static_cast<int>(run.sizes[2 * i]), static_cast<int>(run.sizes[2 * i + 1])));
    const Level level = read_level(run, i, arena);
    const int n = level.n, m = level.m, n_clusters = static_cast<int>(search.n_coarse_clusters);
    const Clusters x = cluster_points(level.dx, level.a, n, n_clusters, search.eccentricity_step, arena);
    const Clusters y = cluster_points(level.dy, level.b, m, n_clusters, search.eccentricity_step, arena);
    Level small = aggregate(level, x, y, arena);
    finish_level(small, run.parameters[i], search.min_coarse_eps_share, config.min_relative_mean);
    CandidateMemory memory;
    memory.take(small, arena);
    Candidates candidates = make_candidates(small, config, search, run, memory.step, arena);
    run_rounds_of_candidates(small, config, search, run.rounds, run.n_coarse_rounds, memory, candidates);
    CandidateMemory fine_memory;
    fine_memory.take(level, arena);
    const Matrix transposed_y = arena.take_matrix(y.count, m);
    transpose(y.distances, m, y.count, transposed_y);
    Candidates fine;
    for (const int k : candidates.order)
        fine.add(prolongate(level, x, y, transposed_y, candidates.plans[k], config, search, fine_memory.step, arena));
    fine.add(product_plan(level, arena));
    const RandomNumbers numbers = draw_numbers(level, search, run, arena);
    break_symmetries(fine.plans.back(), numbers.noise, n, m);
    const SearchRound* fine_rounds = run.rounds + run.n_coarse_rounds;
    run_rounds_of_candidates(level, config, search, fine_rounds, run.n_fine_rounds, fine_memory, fine);
    run.n_steps[i] = memory.n_steps + fine_memory.n_steps;
    for (std::int64_t k = 0; k < run.count; ++k) {
        const bool is_there = k < static_cast<std::int64_t>(fine.order.size());
        const Matrix plan = fine.plans[fine.order[is_there ? k : 0]];
        double* target = run.plans + (i * run.count + k) * run.rows * run.cols;
        for (int row = 0; row < n; ++row) std::memcpy(target + row * run.cols, plan.row(row), sizeof(double) * m);
        run.values[i * run.count + k] = is_there ? fine.values[fine.order[k]] : INFINITE;
    }
}

// Take items from a common counter until none is left.
static void search_items(const SearchRun& run, std::atomic<std::int64_t>& next) {
    for (std::int64_t i = next++; i < run.batch; i = next++) search_item(run, i);
}
