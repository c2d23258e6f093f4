// The atomic operations on a word. C++17, as CUDA sources include it.
#pragma once

namespace memkern {

// Plain is a relaxed load and a relaxed store: the cost of the same accesses without atomicity.
// CasTarget is CircusTent's compare-and-swap: where it updates or writes a word of VAL, the
// variable with the expected value is that word.
enum class Primitive { Add, And, Or, Xor, Min, Max, Exchange, Cas, CasRetry, Plain, CasTarget };

}  // namespace memkern
