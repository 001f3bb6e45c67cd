// Observes what the simulated GPU is given, by name and arguments: of operators their own
// ("aten::mm"); "copy_to_device" and "copy_to_host" beside the host, with their bytes; "record" and
// "block" of events, with the stream and what tells the place in a stream's work from others.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace zeroth::simulated {

// Called by any thread. zeroth_simulated_observe() of the library sets it; null: nobody.
using CallObserver = void (*)(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

void notify_observer(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

}  // namespace zeroth::simulated
