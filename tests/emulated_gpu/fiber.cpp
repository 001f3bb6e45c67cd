#include "tests/emulated_gpu/fiber.h"

#include <cstdint>
#include <cstring>

#if ZEROTH_OWN_SWITCH

// A call of it saves what the ABI lets a function keep, on the stack that it leaves.
asm(R"(
  .text
  .p2align 4
  .hidden zeroth_switch_stack
  .globl zeroth_switch_stack
  .type zeroth_switch_stack, @function
zeroth_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size zeroth_switch_stack, .-zeroth_switch_stack
)");
extern "C" void zeroth_switch_stack(void** from, void* to);

namespace zeroth::emulated {

void Fiber::begin(std::byte* memory, size_t bytes, void (*body)()) {
  const auto end = reinterpret_cast<uintptr_t>(memory + bytes) / 16 * 16;
  auto* const top = reinterpret_cast<void**>(end) - 8;  // six registers, body, where it came from
  std::memset(top, 0, 8 * sizeof(void*));
  top[6] = reinterpret_cast<void*>(body);
  top_ = top;
}

void Fiber::resume(Fiber& from) {
  zeroth_switch_stack(&from.top_, top_);
}

}  // namespace zeroth::emulated

#else

namespace zeroth::emulated {

void Fiber::begin(std::byte* memory, size_t bytes, void (*body)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = memory;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, body, 0);
}

void Fiber::resume(Fiber& from) {
  swapcontext(&from.context_, &context_);
}

}  // namespace zeroth::emulated

#endif
