// Types shared by all instruction sets: the fields of the records that Python packs, and the arguments of a call.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#define UGW_INLINE static inline __attribute__((always_inline))

// Rows of stored matrices and vectors are padded to a multiple of this many doubles, the largest vector of any
// instruction set. Padded points have weight 0.
constexpr int PADDING = 8;
inline int pad(int count) { return (count + PADDING - 1) / PADDING * PADDING; }

// Thresholds of the Python config records and options of the run, by the names that Python gives them.
#define UGW_CONFIG_FIELDS(FIELD)                                                                                       \
    FIELD(iterations_per_check) FIELD(max_recentering_fraction) FIELD(max_aitken_rate) FIELD(hard_side_rounding)       \
    FIELD(overrelaxation) FIELD(min_overrelaxed_change) FIELD(max_two_coefficients) FIELD(max_one_coefficient)         \
    FIELD(coefficient_grain) FIELD(min_independence) FIELD(least_squares_damping) FIELD(max_rows_without_sampling)     \
    FIELD(no_mass_log) FIELD(max_log) FIELD(lambert_iterations) FIELD(min_lambert_slope)                               \
    FIELD(alternation_tol) FIELD(alternation_steps) FIELD(min_log_mass) FIELD(forcing) FIELD(max_inner_tol)            \
    FIELD(max_residual_of_solved) FIELD(coarse_tol) FIELD(near_convergence) FIELD(max_inner_iter)                      \
    FIELD(first_iteration_multiplier) FIELD(product_share) FIELD(max_negative_gradient) FIELD(min_improvement)         \
    FIELD(max_change_to_extrapolate) FIELD(tol) FIELD(anneal) FIELD(inner_max_iter) FIELD(proximal_factor)             \
    FIELD(negligible_eps_share) FIELD(decrease_window) FIELD(max_decrease_rate) FIELD(min_relative_value)              \
    FIELD(min_decrease_rate) FIELD(min_overlap) FIELD(conic_extrapolation) FIELD(min_extrapolated_share)               \
    FIELD(uses_log_domain) FIELD(samples_rows) FIELD(is_monitored) FIELD(max_iter)                                     \
    FIELD(inner_tol) FIELD(proximal_first) FIELD(proximal_last) FIELD(proximal_rounding) FIELD(max_proximal_share)     \
    FIELD(sum_rounding) FIELD(max_trusted_noise) FIELD(noise_factor) FIELD(stiff_residual) FIELD(min_residual)         \
    FIELD(objective_resolution) FIELD(min_relative_mean)                                                               \
    FIELD(RUNNING) FIELD(CONVERGED) FIELD(MAX_ITER) FIELD(ALTERNATING) FIELD(PRECISION) FIELD(COLLAPSED)               \
    FIELD(NON_FINITE)

// Constants of one item: of its problem and of `RunSettings`.
#define UGW_PARAMETER_FIELDS(FIELD)                                                                                    \
    FIELD(eps) FIELD(rho_a) FIELD(rho_b) FIELD(penalty_a) FIELD(penalty_b) FIELD(penalty_total) FIELD(log_mass_a)      \
    FIELD(log_mass_b) FIELD(is_hard_a) FIELD(is_hard_b) FIELD(alpha) FIELD(collapsed_log_mass) FIELD(last_entropy)     \
    FIELD(max_entropy) FIELD(change_tol) FIELD(residual_tol) FIELD(noise) FIELD(cost_scale) FIELD(inner_tol)           \
    FIELD(converged_status) FIELD(objective_resolution) FIELD(may_extrapolate)

// Numbers of one plan: those of `PlanState`.
#define UGW_PLAN_FIELDS(FIELD)                                                                                         \
    FIELD(log_mass) FIELD(distortion) FIELD(kl_a) FIELD(kl_b) FIELD(kl_plan) FIELD(linear) FIELD(reported_log_mass)    \
    FIELD(is_collapsed)

// The other numbers of an iterate: those of `Iterate`, `Controls` and `CostHistory`.
#define UGW_ITERATE_FIELDS(FIELD)                                                                                      \
    FIELD(solution_log_mass) FIELD(last_entropy) FIELD(objective) FIELD(change) FIELD(residual) FIELD(n_returns)       \
    FIELD(converged_objective) FIELD(is_extrapolated) FIELD(eps) FIELD(entropy) FIELD(adds_product)                    \
    FIELD(iteration_multiplier) FIELD(n_steps) FIELD(is_long_step) FIELD(had_rejected_long_step)

#define UGW_DECLARE(name) double name;

struct Config {
    UGW_CONFIG_FIELDS(UGW_DECLARE)
};

struct Parameters {
    UGW_PARAMETER_FIELDS(UGW_DECLARE)
};

struct PlanNumbers {
    UGW_PLAN_FIELDS(UGW_DECLARE)
};

struct IterateNumbers {
    PlanNumbers state;
    PlanNumbers previous_state;
    UGW_ITERATE_FIELDS(UGW_DECLARE)
};

// Constants of one linear problem; max_rounds: of `iterations_per_check` iterations each.
#define UGW_LINEAR_FIELDS(FIELD) FIELD(eps) FIELD(rho_a) FIELD(rho_b) FIELD(tolerance) FIELD(max_rounds)

struct LinearParameters {
    UGW_LINEAR_FIELDS(UGW_DECLARE)
};

// Constants of one conic item, see `CGW`: rho1/R, R, 2 log(m(a)^(rho1/R) m(b)^(rho2/R)), the value and the overlap at which
// nothing is matched and everything is.
#define UGW_CONIC_FIELDS(FIELD)                                                                                        \
    FIELD(rho_share) FIELD(rho_total) FIELD(log_mass_factor) FIELD(unmatched_value) FIELD(max_overlap)

struct ConicParameters {
    UGW_CONIC_FIELDS(UGW_DECLARE)
};

// The numbers of one step in the history, in this order.
struct HistoryRow {
    double objective, relaxed, change, residual, mass;
};

// The objective at the end of a run: the terms of F(p, p) and the value F(p, q) of the last plan p and the plan q before.
struct FinalValues {
    double distortion, linear, marginal_a, marginal_b, entropy, relaxed;
};

// An array of Python: item i starts at data + i·item; strides count doubles and may be 0.
struct Strided {
    const double* data;
    std::int64_t item, row, col;
};

// The factors of the conic kernel of one item: φ_r(Dx), (rank·n, n), and signs_r φ_r(Dy), (rank·pad(m), m), the terms one
// below the other, rows padded with zeros. right_rows: the transposes of the latter side by side, (pad(m), right_stride).
// Rank 0: `left` is the kernel itself, (n·m, n·pad(m)), and `right` and `right_rows` are null.
struct ConicKernel {
    double *left, *right, *right_rows;
    std::int64_t right_stride, rank;
};

// The arguments of one call of products of plans of one size with the same kernel.
struct ProductRun {
    std::int64_t batch;
    std::int64_t n_threads;
    std::int64_t n, m;
    ConicKernel kernel;
    Strided plans;
    double* products;  // (batch, n, m)
};

// The arguments of one call for conic problems, beside those of `Run`.
struct ConicRun {
    const ConicParameters* parameters;
    const ConicKernel* kernels;
    double* overlaps;    // (batch, n_overlaps), of `LiftedState`: overlap, last_overlap, best_overlaps
    double* best_plans;  // (batch, rows, stride)
    std::int64_t n_overlaps;
};

// The arguments of one call. Arrays have one entry per item in their first dimension.
struct Run {
    std::int64_t batch;
    std::int64_t n_threads;
    std::int64_t last_step;         // items run until they end or have made this step
    std::int64_t history_capacity;  // rows per item of `history`
    double seconds;                 // after which no further step is begun
    const Config* config;
    const std::int64_t* sizes;  // (batch, 2), n and m without padding
    Parameters* parameters;
    Strided dx, dy, cost, log_a, log_b;  // cost.data is null if there is no linear cost
    IterateNumbers* iterates;
    std::int64_t* status;
    std::int64_t* n_iter;
    HistoryRow* history;  // (batch, history_capacity), or null
    double *f, *g;        // potentials, (batch, f_size) and (batch, g_size)
    std::int64_t f_size, g_size;
    // The last three plans, local costs of plans, and local costs at which steps were linearized (or null):
    // (batch, 3, rows, stride) each, padded with zeros. Before and after a call, those of the last step are at position 0,
    // of the step before at 2, and of the one before that at 1.
    double* plans;
    double* outputs;
    double* inputs;
    std::int64_t rows, stride;
    FinalValues* values;    // (batch,), or null; of the last plans after a call
    const ConicRun* conic;  // null for problems with a distortion t²; if given, dx, dy and cost are not read
};

// The arguments of one call of Sinkhorn: linear problems of one size, with one entry per item in the first dimension.
struct LinearRun {
    std::int64_t batch;
    std::int64_t n_threads;
    std::int64_t n, m;
    const Config* config;
    const LinearParameters* parameters;
    Strided cost, log_a, log_b;  // cost may be +inf
    double *f, *g;               // (batch, n) and (batch, m): initial potentials, replaced by the final ones
    double* plan;                // (batch, n, m), of unit mass
    double *log_mass, *residual;
};

// Options and thresholds of the search for initial plans, by the names that Python gives them.
#define UGW_SEARCH_FIELDS(FIELD)                                                                                       \
    FIELD(n_coarse_clusters) FIELD(n_random_candidates) FIELD(min_random_candidates)                                   \
    FIELD(random_candidates_times_eps_share) FIELD(n_anchor_pairs) FIELD(n_anchor_proposals)                           \
    FIELD(anchor_mismatch_step) FIELD(anchor_width)                                                                    \
    FIELD(eccentricity_step) FIELD(n_noise_factors) FIELD(symmetry_breaking_noise) FIELD(first_transport_eps_share)    \
    FIELD(last_transport_eps_share) FIELD(transport_tol) FIELD(transport_max_iter) FIELD(min_coarse_eps_share)         \
    FIELD(min_candidate_distance) FIELD(candidate_tie)

struct SearchConfig {
    UGW_SEARCH_FIELDS(UGW_DECLARE)
};

// One round of successive halving: steps of every candidate, 0 to evaluate it only, how many survive, and how far
// their objectives may be above the lowest one, in units of the objective scale.
struct SearchRound {
    double max_steps, n_survivors, max_gap;
};

// The arguments of one search. Arrays have one entry per item in their first dimension.
struct SearchRun {
    std::int64_t batch;
    std::int64_t n_threads;
    std::int64_t count;  // plans to return per item
    std::int64_t n_coarse_rounds, n_fine_rounds;
    const Config* config;  // options of the steps
    const SearchConfig* search;
    const SearchRound* rounds;     // those between clusters, then those on all points
    const std::int64_t* sizes;     // (batch, 2), n and m without padding
    const Parameters* parameters;  // only the fields that describe the problem are read
    Strided dx, dy, cost, log_a, log_b;  // cost.data is null if there is no linear cost
    const double* uniforms;   // (candidates, proposals, anchors, 2), in [0, 1)
    const double* normals;    // (2, max_points, factors)
    std::int64_t max_points;
    double* plans;  // (batch, count, rows, cols), of unit mass, zero in the padding
    std::int64_t rows, cols;
    double* values;  // (batch, count), their penalized objectives, +inf for a repeated plan
    std::int64_t* n_steps;  // (batch,), steps of all candidates together
};

// Constants of one problem that Frank–Wolfe solves; program_mass: mass of the solutions of its linear program, which are
// computed at mass 1; marginal_constant: marginal penalties at the empty plan; has_mass: is the mass of plans given?
#define UGW_FRANK_WOLFE_FIELDS(FIELD)                                                                                  \
    FIELD(mass_unit) FIELD(alpha) FIELD(total_penalty) FIELD(marginal_constant) FIELD(gap_scale) FIELD(tol)            \
    FIELD(min_mass) FIELD(program_mass) FIELD(has_mass)

struct FrankWolfeParameters {
    UGW_FRANK_WOLFE_FIELDS(UGW_DECLARE)
};

// The linear program of one problem: its own numbers of points without padding, how many of them (dummy points included)
// have weight, and where the indices of these and the cost begin in `supports` and `costs`.
struct FrankWolfeProgram {
    std::int64_t n, m, n_rows, n_cols, rows, cols, start;
};

// Matrices of all items with contiguous rows that are padded with zeros; item is 0 if all share one matrix.
struct Rows {
    const double* data;
    std::int64_t item, row;
};

enum FrankWolfeTask { WRITE_COSTS, MAKE_STEP, SWAP };

// The arguments of one call for a batch of plans: it writes the costs of their linear programs, or, once these are solved,
// makes a step, or lowers the objectives of plans by swaps. `items` has the problem of each plan.
struct FrankWolfeRun {
    std::int64_t batch, n_threads;
    std::int64_t n, m;  // of the arrays of plans
    std::int64_t task;           // a `FrankWolfeTask`
    std::int64_t running, converged, collapsed;  // codes of `Status`
    double swap_levels;                          // `ProblemConfig.swap_levels`
    double cost_steps;                           // 10^`KernelConfig.cost_decimals`
    const FrankWolfeParameters* parameters;      // of each problem, like the next ones
    const FrankWolfeProgram* programs;
    Rows dx, dy, cost;              // cost.data is null if there is no linear cost
    const std::int64_t* supports;
    double* costs;                  // written
    const double* vertices;         // solutions of the linear programs, of mass 1
    const std::int64_t* items;      // (batch,)
    const double *plan, *local_cost;  // (batch, n, m)
    const double *mass, *linear;      // (batch,)
    double *new_plan, *new_local_cost;  // (batch, n, m), written by a step
    double* numbers;                // (6, batch): mass, distortion, linear, change, gap, objective; written by a step
    std::int64_t* status;           // (batch,), written by a step
    std::int64_t max_swaps;         // of one plan in one call
    double min_share;               // `ProblemConfig.min_vertex_share`
    // SWAP without `plan` makes vertices: the weights of each problem, in units of plans, and the orders of the points for
    // each plan. Plans after swaps are written to new_plan, their objectives to the last row of `numbers`.
    const double *a, *b;            // (items, n), (items, m)
    const std::int64_t *row_orders, *col_orders;  // (batch, n), (batch, m)
};
