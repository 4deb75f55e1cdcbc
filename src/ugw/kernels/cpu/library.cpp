// The functions that Python calls: alternating minimization of a batch of small problems, and the layout of its records.
#include <cstdlib>
#include <cstring>

#include "common.hpp"

using Deadline = std::chrono::steady_clock::time_point;
using RunFunction = void (*)(const Run&, std::atomic<std::int64_t>&, Deadline);
using PrepareFunction = void (*)(const Run&, std::atomic<std::int64_t>&);
using LinearFunction = void (*)(const LinearRun&, std::atomic<std::int64_t>&);
using ProductFunction = void (*)(const ProductRun&, std::atomic<std::int64_t>&);
using SearchFunction = void (*)(const SearchRun&, std::atomic<std::int64_t>&);
using FrankWolfeFunction = void (*)(const FrankWolfeRun&, std::atomic<std::int64_t>&);

#define UGW_RUN(name)                                                      \
    namespace name {                                                       \
    void run(const Run&, std::atomic<std::int64_t>&, Deadline);            \
    void prepare(const Run&, std::atomic<std::int64_t>&);                  \
    void solve_linear(const LinearRun&, std::atomic<std::int64_t>&);       \
    void multiply(const ProductRun&, std::atomic<std::int64_t>&);          \
    void search(const SearchRun&, std::atomic<std::int64_t>&);             \
    void frank_wolfe(const FrankWolfeRun&, std::atomic<std::int64_t>&);    \
    }
UGW_RUN(baseline)
#if defined(__x86_64__) && defined(__linux__)
UGW_RUN(avx2)
UGW_RUN(avx512)
#endif

namespace {

struct Choice {
    const char* name;
    RunFunction run;
    PrepareFunction prepare;
    LinearFunction solve_linear;
    ProductFunction multiply;
    SearchFunction search;
    FrankWolfeFunction frank_wolfe;
};

// The best instruction set of this processor, or the one that UGW_INSTRUCTION_SET names if the processor has it.
Choice choose_instruction_set() {
    const char* wanted = std::getenv("UGW_INSTRUCTION_SET");
    auto is_wanted = [wanted](const char* name) { return wanted == nullptr || std::strcmp(wanted, name) == 0; };
    (void)is_wanted;
#if defined(__x86_64__) && defined(__linux__)
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl");
    if (has_avx512 && is_wanted("avx512"))
        return {"avx512", avx512::run, avx512::prepare, avx512::solve_linear, avx512::multiply, avx512::search,
                avx512::frank_wolfe};
    if (has_avx2 && is_wanted("avx2"))
        return {"avx2", avx2::run, avx2::prepare, avx2::solve_linear, avx2::multiply, avx2::search, avx2::frank_wolfe};
#endif
    return {"baseline", baseline::run, baseline::prepare, baseline::solve_linear, baseline::multiply, baseline::search,
            baseline::frank_wolfe};
}

const Choice& chosen() {
    static const Choice choice = choose_instruction_set();
    return choice;
}

// Call `work` in up to `n_threads` threads, this one included; false if memory was missing in one of them.
template <typename Work>
bool call_in_threads(std::int64_t n_threads, Work work) {
    std::atomic<bool> is_out_of_memory{false};
    auto guarded = [&] {
        try {
            work();
        } catch (const std::exception&) {
            is_out_of_memory = true;
        }
    };
    std::vector<std::thread> workers;
    try {
        for (std::int64_t k = 1; k < n_threads; ++k) workers.emplace_back(guarded);
    } catch (const std::exception&) {
        // Fewer threads do the same work.
    }
    guarded();
    for (std::thread& worker : workers) worker.join();
    return !is_out_of_memory;
}

}  // namespace

#define UGW_NAME(name) #name ","

#pragma GCC visibility push(default)
extern "C" {

// Names of the fields of a record in order, each followed by a comma; null for an unknown record.
const char* ugw_field_names(const char* record) {
    if (std::strcmp(record, "config") == 0) return UGW_CONFIG_FIELDS(UGW_NAME);
    if (std::strcmp(record, "parameters") == 0) return UGW_PARAMETER_FIELDS(UGW_NAME);
    if (std::strcmp(record, "plan") == 0) return UGW_PLAN_FIELDS(UGW_NAME);
    if (std::strcmp(record, "iterate") == 0) return UGW_ITERATE_FIELDS(UGW_NAME);
    if (std::strcmp(record, "linear") == 0) return UGW_LINEAR_FIELDS(UGW_NAME);
    if (std::strcmp(record, "search") == 0) return UGW_SEARCH_FIELDS(UGW_NAME);
    if (std::strcmp(record, "conic") == 0) return UGW_CONIC_FIELDS(UGW_NAME);
    if (std::strcmp(record, "frank_wolfe") == 0) return UGW_FRANK_WOLFE_FIELDS(UGW_NAME);
    return nullptr;
}

// Bytes of the records of arguments together, to compare with those of their declarations in Python.
std::int64_t ugw_run_size() {
    return sizeof(Run) + sizeof(ConicRun) + sizeof(LinearRun) + sizeof(ProductRun) + sizeof(SearchRun) +
           sizeof(FrankWolfeRun);
}

const char* ugw_instruction_set() { return chosen().name; }

// Make steps of a batch until all items have ended or made `last_step` steps, or `seconds` are over. Returns the number of
// items that still run and have steps left, −1 if memory is missing.
std::int64_t ugw_run(const Run* run) {
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                              std::chrono::duration<double>(run->seconds));
    std::atomic<std::int64_t> next{0};
    const auto work = [&] { chosen().run(*run, next, deadline); };
    if (!call_in_threads(std::min(run->n_threads, run->batch), work)) return -1;
    std::int64_t n_left = 0;
    for (std::int64_t i = 0; i < run->batch; ++i)
        n_left += run->status[i] == static_cast<std::int64_t>(run->config->RUNNING) && run->n_iter[i] < run->last_step;
    return n_left;
}

// Prepare the runs of a batch from the plans at position 0 of `plans`: set the parameters that do not describe the problem,
// the iterates before the first step and all local costs. cost_scale of the parameters is the mean distortion of the
// product plan if it is known, NaN otherwise. Returns 0, or −1 if memory is missing.
std::int64_t ugw_prepare(const Run* run) {
    std::atomic<std::int64_t> next{0};
    const auto work = [&] { chosen().prepare(*run, next); };
    return call_in_threads(std::min(run->n_threads, run->batch), work) ? 0 : -1;
}

// Solve the linear problems of a batch by Sinkhorn. Returns 0, or −1 if memory is missing.
std::int64_t ugw_solve_linear(const LinearRun* run) {
    std::atomic<std::int64_t> next{0};
    const auto work = [&] { chosen().solve_linear(*run, next); };
    return call_in_threads(std::min(run->n_threads, run->batch), work) ? 0 : -1;
}

// Write the products of a kernel with the plans of a batch. Returns 0, or −1 if memory is missing.
std::int64_t ugw_multiply(const ProductRun* run) {
    std::atomic<std::int64_t> next{0};
    const auto work = [&] { chosen().multiply(*run, next); };
    return call_in_threads(std::min(run->n_threads, run->batch), work) ? 0 : -1;
}

// Search initial plans of a batch and write the best. Returns 0, or −1 if memory is missing.
std::int64_t ugw_search(const SearchRun* run) {
    std::atomic<std::int64_t> next{0};
    const auto work = [&] { chosen().search(*run, next); };
    return call_in_threads(std::min(run->n_threads, run->batch), work) ? 0 : -1;
}

// Do the `FrankWolfeTask` of a call: write costs of linear programs, make steps, or make vertices and swap. Returns 0, or
// −1 if memory is missing.
std::int64_t ugw_frank_wolfe(const FrankWolfeRun* run) {
    std::atomic<std::int64_t> next{0};
    const auto work = [&] { chosen().frank_wolfe(*run, next); };
    return call_in_threads(std::min(run->n_threads, run->batch), work) ? 0 : -1;
}
}
#pragma GCC visibility pop
