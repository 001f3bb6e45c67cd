// An explanation for an invalid value of a port variable.
#pragma once

#include <string_view>

namespace zeroth {

// Returns why this value of MASTER_PORT is no port, as the rest of a sentence about the variable.
// Returns an empty text if the cause is unknown. Kubernetes sets MASTER_PORT=tcp://10.0.0.1:29500
// in each pod if a service "master" exists.
inline std::string_view explain_invalid_port(std::string_view value) {
  if (value.substr(0, 6) != "tcp://" && value.substr(0, 6) != "udp://") return "";
  return "was set by Kubernetes for a service named 'master': set MASTER_PORT to the "
         "port of rank 0 in the pod's env, or enableServiceLinks to false";
}

}  // namespace zeroth
