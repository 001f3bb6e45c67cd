// Stacks that a thread of the CPU switches between.
#pragma once

#include <cstddef>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define ZEROTH_OWN_SWITCH 1
#else  // ten times slower
#include <ucontext.h>
#define ZEROTH_OWN_SWITCH 0
#endif

namespace zeroth::emulated {

// A stack that is not running, or has not begun.
class Fiber {
 public:
  // Runs body() from the first resume() on; it never returns. `memory` is the stack's.
  void begin(std::byte* memory, size_t bytes, void (*body)());
  // Leaves the running stack, which becomes `from`, for this one.
  void resume(Fiber& from);

 private:
#if ZEROTH_OWN_SWITCH
  void* top_ = nullptr;
#else
  ucontext_t context_ = {};
#endif
};

}  // namespace zeroth::emulated
