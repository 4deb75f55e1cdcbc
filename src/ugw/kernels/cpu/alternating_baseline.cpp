// The instructions that every processor of this architecture has.
#include "common.hpp"

#define UGW_NAMESPACE baseline
#define UGW_VECTOR_BYTES 16
#include "instruction_set.hpp"
