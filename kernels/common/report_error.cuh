// How a kernel says what went wrong.
//
// A kernel that fails writes a code with report_error and goes on with values that have no meaning. The first report
// stays. Nothing traps or prints.
#pragma once

#include "../abi/status.h"
#include "launch.h"

DEVICE void report_error(uint64_t status_address, uint32_t code, uint32_t detail = 0, uint64_t value = 0) {
    Status *status = (Status *)status_address;
    if (atomicCAS(&status->code, (uint32_t)ERROR_NONE, code) != ERROR_NONE) return;
    status->detail = detail;
    status->value = value;
}
