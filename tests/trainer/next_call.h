// What a library that is loaded before a program hands a call on to.
#pragma once

#include <dlfcn.h>

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}
