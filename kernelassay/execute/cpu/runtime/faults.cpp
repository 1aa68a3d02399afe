// Signals: what a kernel does that no hook saw. Handlers are installed for the time of a run only.
//
// SIGSEGV, SIGBUS, SIGILL end the run as a crash. SIGALRM is the backstop behind fuel. SIGFPE is an
// integer division that x86 traps and a GPU does not: it is carried out here, with the result a GPU
// gives (by zero: all-ones quotient, the dividend as remainder; INT_MIN / -1: INT_MIN, 0), and the
// kernel goes on.
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <cstring>

#include "checks.h"
#include "fiber.h"
#include "run.h"

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGALRM};
constexpr int kSignalCount = sizeof kSignals / sizeof *kSignals;
struct sigaction saved_actions[kSignalCount];
stack_t saved_stack;
itimerval saved_timer;
pthread_t run_thread;
volatile sig_atomic_t installed;
char alternate_stack[64 << 10];

#ifdef __x86_64__
// ModRM register numbers to gregset indices.
constexpr int kRegisters[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};

struct Operand {
  uint64_t value;
  int length;  // of ModRM, SIB and displacement
};

uint64_t load(uintptr_t address, int bytes) {
  uint64_t value = 0;
  memcpy(&value, reinterpret_cast<void*>(address), size_t(bytes));
  return value;
}

// The r/m operand whose ModRM byte is at `at`; `instruction_end` needs its length for rip-relative.
Operand rm_operand(const uint8_t* at, int rex, int bytes, const greg_t* registers) {
  const int mode = at[0] >> 6, rm = at[0] & 7;
  const auto reg = [&](int number) { return uint64_t(registers[kRegisters[number]]); };
  if (mode == 3) return {reg(rm | (rex & 1) << 3), 1};
  int length = 1;
  uint64_t address = 0;
  bool displaced32 = mode == 2;
  if (rm == 4) {
    const uint8_t sib = at[length++];
    const int base = sib & 7, index = (sib >> 3 & 7) | (rex & 2) << 2;
    if (base == 5 && mode == 0)
      displaced32 = true;
    else
      address = reg(base | (rex & 1) << 3);
    if (index != 4) address += reg(index) << (sib >> 6);
  } else if (rm == 5 && mode == 0) {
    int32_t displacement;
    memcpy(&displacement, at + 1, 4);
    return {load(uintptr_t(at) + 5 + int64_t(displacement), bytes), 5};
  } else {
    address = reg(rm | (rex & 1) << 3);
  }
  if (mode == 1) {
    address += int64_t(int8_t(at[length]));
    length += 1;
  } else if (displaced32) {
    int32_t displacement;
    memcpy(&displacement, at + length, 4);
    address += int64_t(displacement);
    length += 4;
  }
  return {load(address, bytes), length};
}

// Carry out the `div` or `idiv` at the trap; false if it is another instruction.
bool emulate_division(ucontext_t* context) {
  greg_t* registers = context->uc_mcontext.gregs;
  const uint8_t* at = reinterpret_cast<const uint8_t*>(registers[REG_RIP]);
  int rex = 0, bytes = 4;
  if (*at == 0x66) bytes = 2, at++;
  if ((*at & 0xF0) == 0x40) rex = *at++;
  if (rex & 8) bytes = 8;
  const bool byte_wide = at[0] == 0xF6;
  const int form = at[1] >> 3 & 7;
  if ((!byte_wide && at[0] != 0xF7) || form < 6) return false;
  if (byte_wide) bytes = 1;
  const Operand divisor = rm_operand(at + 1, rex, bytes, registers);
  const uint64_t mask = bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * bytes) - 1;
  const uint64_t dividend = uint64_t(registers[REG_RAX]) & mask;
  const bool by_zero = !(divisor.value & mask);
  const uint64_t quotient = by_zero ? mask : dividend;
  const uint64_t remainder = by_zero ? dividend : 0;
  const auto write = [&](greg_t& target, uint64_t value) {
    // A 32-bit result clears the upper half; narrower ones leave it.
    target = greg_t(bytes >= 4 ? value : (uint64_t(target) & ~mask) | value);
  };
  if (byte_wide) {  // AL the quotient, AH the remainder
    registers[REG_RAX] = greg_t((uint64_t(registers[REG_RAX]) & ~uint64_t{0xFFFF}) | quotient |
                                (remainder & 0xFF) << 8);
  } else {
    write(registers[REG_RAX], quotient);
    write(registers[REG_RDX], remainder);
  }
  registers[REG_RIP] = greg_t(uintptr_t(at) + 1 + uintptr_t(divisor.length));
  return true;
}
#endif

void on_signal(int number, siginfo_t* info, void* context) {
  if (!installed) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  if (!pthread_equal(pthread_self(), run_thread)) {
    if (number == SIGALRM) {
      pthread_kill(run_thread, SIGALRM);
    } else {  // a defect elsewhere in the process; not ours to catch
      signal(number, SIG_DFL);
      raise(number);
    }
    return;
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  switch (number) {
    case SIGALRM: fault(kTimeout, "wall-clock backstop");
    case SIGFPE:
#ifdef __x86_64__
      if (emulate_division(static_cast<ucontext_t*>(context))) return;
#endif
      fault(kCrash, "integer division that cannot be carried out");
    case SIGILL: fault(kCrash, "illegal instruction");
    default:
      if (on_a_stack(address)) fault(kCrash, "stack overflow");
      fault(kCrash, "illegal address", address);
  }
}

}  // namespace

void faults_install(uint32_t backstop_ms) {
  run_thread = pthread_self();
  stack_t stack{};
  stack.ss_sp = alternate_stack;
  stack.ss_size = sizeof alternate_stack;
  sigaltstack(&stack, &saved_stack);
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  action.sa_sigaction = on_signal;
  for (int i = 0; i < kSignalCount; i++) sigaction(kSignals[i], &action, &saved_actions[i]);
  installed = 1;
  itimerval timer{};
  timer.it_value.tv_sec = backstop_ms / 1000;
  timer.it_value.tv_usec = backstop_ms % 1000 * 1000;
  setitimer(ITIMER_REAL, &timer, &saved_timer);
}

void faults_restore() {
  setitimer(ITIMER_REAL, &saved_timer, nullptr);
  installed = 0;
  for (int i = 0; i < kSignalCount; i++) sigaction(kSignals[i], &saved_actions[i], nullptr);
  sigaltstack(&saved_stack, nullptr);
}
