// Numbers as a person reads them.
#pragma once

#include <cstdint>
#include <string>

namespace zeroth {

// "512 B", "1.5 KiB", "35.2 MiB", "1.10 GiB".
std::string format_bytes(int64_t bytes);

// "950", "31.6K", "31.6M", "1.10B": counts of parameters and tokens.
std::string format_count(int64_t count);

// "0.8s", "42s", "3m05s", "2h07m".
std::string format_duration(double seconds);

// A NaN prints as "nan" then on every processor: which sign one has depends on the instruction that
// made it, and means nothing.
double without_sign_of_nan(double value);

}  // namespace zeroth
