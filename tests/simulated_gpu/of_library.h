// What the library of the simulated GPU offers to tests beside the interface of a GPU library.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

namespace zeroth::simulated {

template <typename Function>
Function* of_library(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  const bool is_there = found != nullptr;
  REQUIRE(is_there);
  return reinterpret_cast<Function*>(found);
}

}  // namespace zeroth::simulated
