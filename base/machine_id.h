// Which machine this process runs on.
#pragma once

#include <optional>
#include <string>

namespace zeroth {

// As its kernel has it, for people; "unknown" where it does not say.
std::string machine_name();

// Of the running kernel, until the machine starts anew; empty where a sandbox hides it.
std::string boot_id();

// The same for processes that find each other in /proc, by their kernel and the namespace of their
// numbers; or by `override_id` (ZEROTH_HOST_ID), where somebody says which machine this is.
std::string machine_id(const std::optional<std::string>& override_id = std::nullopt);

}  // namespace zeroth
