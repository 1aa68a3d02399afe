// Runs: one launch plan from start to end, its result, and the epoch axis.
#pragma once
#include "abi.h"
#include "block.h"

extern Result result;

// Count a finding of some other thread than the running one.
void report_at(FindingKind kind, const Thread& thread, uint64_t line);

// The epoch axis (shadow.h).
void now_begin_launch();
void now_begin_block();
void now_next_epoch();
void now_thread(int number);
void launch_number(uint32_t step);

// Whether the access is a read of the running image's own data: its constants.
bool launch_owns_data(uintptr_t address, size_t n, bool writes);

// Handlers are installed for the time of a run only (faults.cpp).
void faults_install(uint32_t backstop_ms);
void faults_restore();
