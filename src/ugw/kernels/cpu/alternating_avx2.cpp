#include "common.hpp"

#if defined(__x86_64__) && defined(__linux__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define UGW_NAMESPACE avx2
#define UGW_VECTOR_BYTES 32
#include "instruction_set.hpp"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
