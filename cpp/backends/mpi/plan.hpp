// What is exchanged between MPI's processes.
#pragma once

#include <cstdint>
#include <vector>

namespace memkern::mpi {

// Another rank, or this one, with the positions of the elements sent to it and the number of
// elements received from it.
struct Neighbour {
  int rank = 0;
  std::vector<std::int64_t> sent;
  std::int64_t received = 0;
};

// Elements that a rank sends and receives. Received elements are numbered in the order of the
// neighbours: for each k, the array's element to[k] gets the received element with the number
// of[k], or is increased by it.
struct Plan {
  std::vector<Neighbour> neighbours;
  std::vector<std::int64_t> to;
  std::vector<std::int64_t> of;
  bool adds = false;
  // Seconds without a message after which a rank ends all ranks.
  double timeout_s = 120.0;
  // Whether MPI_Ineighbor_alltoallv moves the elements instead of one message for each neighbour.
  bool collective = false;
};

}  // namespace memkern::mpi
