// What a variable that is to be a port may hold instead.
#pragma once

#include <string_view>

namespace zeroth {

// Why MASTER_PORT with this value is no port, to be put behind the variable; empty: nothing is
// known. Kubernetes sets MASTER_PORT=tcp://10.0.0.1:29500 in each pod beside a service "master".
inline std::string_view explain_invalid_port(std::string_view value) {
  if (value.substr(0, 6) != "tcp://" && value.substr(0, 6) != "udp://") return "";
  return "is what Kubernetes says of a service that is called 'master': set MASTER_PORT to the "
         "port of rank 0 in the pod's env, or enableServiceLinks to false";
}

}  // namespace zeroth
