// Who is told of each operator that the simulated GPU is given, by name ("aten::mm") and arguments.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace zeroth::simulated {

// Called by any thread. zeroth_simulated_observe() of the library sets it; null: nobody.
using CallObserver = void (*)(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

}  // namespace zeroth::simulated
