// The whole loop for one instruction set. The file that includes this one defines UGW_NAMESPACE and UGW_VECTOR_BYTES, and
// switches the instruction set on after it has included common.hpp with all system headers: their inline functions must
// run on every processor, because the linker keeps only one copy of each.

namespace UGW_NAMESPACE {

#include "simd.hpp"
#include "matrix.hpp"
#include "item.hpp"
#include "sinkhorn.hpp"
#include "plan_state.hpp"
#include "anderson.hpp"
#include "conic.hpp"
#include "step.hpp"
#include "item_loop.hpp"
#include "linear_loop.hpp"
#include "prepare.hpp"
#include "search.hpp"
#include "swaps.hpp"
#include "frank_wolfe.hpp"

void run(const Run& run, std::atomic<std::int64_t>& next, std::chrono::steady_clock::time_point deadline) {
    run_items(run, next, deadline);
}

void prepare(const Run& run, std::atomic<std::int64_t>& next) { prepare_items(run, next); }

void solve_linear(const LinearRun& run, std::atomic<std::int64_t>& next) { solve_linear_items(run, next); }

void multiply(const ProductRun& run, std::atomic<std::int64_t>& next) { multiply_plans(run, next); }

void search(const SearchRun& run, std::atomic<std::int64_t>& next) { search_items(run, next); }

void frank_wolfe(const FrankWolfeRun& run, std::atomic<std::int64_t>& next) { run_frank_wolfe(run, next); }

}  // namespace UGW_NAMESPACE
