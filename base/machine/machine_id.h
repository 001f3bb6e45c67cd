// Identification of the machine on which this process runs.
#pragma once

#include <optional>
#include <string>

namespace zeroth {

// Returns the machine's host name for messages, or "unknown" if the kernel does not report one.
std::string machine_name();

// Returns the id of the current boot, which changes at each restart of the machine. Returns an
// empty text if a sandbox hides it.
std::string boot_id();

// Returns an id that is equal for processes that can find each other in /proc, made of the boot id
// and the PID namespace. Returns one made of `override_id` (ZEROTH_HOST_ID) if a user sets it.
std::string machine_id(const std::optional<std::string>& override_id = std::nullopt);

}  // namespace zeroth
