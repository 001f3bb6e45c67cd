// What the code has to know of the processor that it runs on.
#pragma once

namespace zeroth {

// Whether Intel made the processor; false on other architectures than x86.
bool cpu_is_intel();
bool cpu_has_avx512();

}  // namespace zeroth
