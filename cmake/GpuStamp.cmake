# A script: writes FILE, which defines kGpuStamp (device/gpu.h) as BUILD and a hash of SOURCES, in any order.
#   cmake -DFILE=... -DBUILD=... -DSOURCES=a.h,b.cpp -P GpuStamp.cmake
string(REPLACE "," ";" sources "${SOURCES}")
list(SORT sources)
set(hashes "")
foreach(source ${sources})
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 12 hash)
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT [[
#include "device/gpu.h"

namespace zeroth::device {

const char kGpuStamp[] = "@BUILD@, sources @hash@";

}  // namespace zeroth::device
]])
