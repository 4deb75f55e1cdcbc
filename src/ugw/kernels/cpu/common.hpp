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
    FIELD(negligible_eps_share)                                                                                        \
    FIELD(uses_log_domain) FIELD(samples_rows) FIELD(is_monitored) FIELD(max_iter)                                     \
    FIELD(RUNNING) FIELD(MAX_ITER) FIELD(ALTERNATING) FIELD(COLLAPSED) FIELD(NON_FINITE)

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
    FIELD(converged_objective) FIELD(is_extrapolated) FIELD(eps) FIELD(entropy) FIELD(leaves_zeros)                    \
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

// The numbers of one step in the history, in this order.
struct HistoryRow {
    double objective, relaxed, change, residual, mass;
};

// An array of Python: item i starts at data + i·item; strides count doubles and may be 0.
struct Strided {
    const double* data;
    std::int64_t item, row, col;
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
    const Parameters* parameters;
    Strided dx, dy, cost, log_a, log_b;  // cost.data is null if there is no linear cost
    IterateNumbers* iterates;
    std::int64_t* status;
    std::int64_t* n_iter;
    HistoryRow* history;  // (batch, history_capacity), or null
    // Potentials, (batch, f_size) and (batch, g_size), padded with zeros.
    double* f;
    double* g;
    std::int64_t f_size, g_size;
    // The last three plans, local costs of plans, and local costs at which steps were linearized (or null):
    // (batch, 3, rows, stride) each, padded with zeros. Step k writes to position k modulo 3.
    double* plans;
    double* outputs;
    double* inputs;
    std::int64_t rows, stride;
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
    FIELD(n_coarse_clusters) FIELD(n_random_candidates) FIELD(n_anchor_pairs) FIELD(anchor_width)                      \
    FIELD(eccentricity_step) FIELD(n_noise_factors) FIELD(symmetry_breaking_noise) FIELD(first_transport_eps_share)    \
    FIELD(last_transport_eps_share) FIELD(transport_tol) FIELD(transport_max_iter) FIELD(min_coarse_eps_share)         \
    FIELD(min_candidate_distance) FIELD(candidate_tie) FIELD(min_relative_mean) FIELD(tol) FIELD(inner_tol) FIELD(proximal_first)           \
    FIELD(proximal_last) FIELD(proximal_rounding) FIELD(max_proximal_share) FIELD(sum_rounding)                        \
    FIELD(max_trusted_noise) FIELD(noise_factor) FIELD(stiff_residual) FIELD(min_residual) FIELD(forcing)              \
    FIELD(objective_resolution) FIELD(CONVERGED) FIELD(PRECISION)

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
    const double* uniforms;   // (candidates, anchors, 2), in [0, 1)
    const double* normals;    // (2, max_points, factors)
    std::int64_t max_points;
    double* plans;  // (batch, count, rows, cols), of unit mass, zero in the padding
    std::int64_t rows, cols;
    double* values;  // (batch, count), their penalized objectives, +inf for a repeated plan
};
