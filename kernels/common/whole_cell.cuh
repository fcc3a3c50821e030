// Cells that are moved as they are, whatever they hold. Columns start at multiples of 256 bytes, and their parts at
// multiples of a cell, so that one access moves 16 bytes.
#pragma once

#include "launch.h"

struct alignas(16) Cell16 {
    uint64_t low, high;
};

struct Cell32 {
    Cell16 low, high;
};
