// The bodies over two-dimensional arrays, the five-point stencil and y += A x, are compared with
// their definitions: run serially on arrays that end at an inaccessible page, divided among two
// workers.
#include "families/streaming/args.hpp"
#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

constexpr double kAlpha = 3.0;

struct Trial {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t distance;  // of the prefetch
  std::int64_t shift_B;   // from one array's alignment to the next one's
};

std::vector<Trial> trials() {
  std::vector<Trial> all;
  const std::pair<std::int64_t, std::int64_t> shapes[] = {
      {3, 3}, {3, 4}, {4, 3}, {5, 18}, {7, 35}, {12, 67}, {67, 12}, {5, 600}, {600, 5}};
  for (const auto& [rows, columns] : shapes) {
    for (const std::int64_t distance : {std::int64_t{0}, std::int64_t{5}, rows * columns}) {
      for (const std::int64_t shift_B : {0, 8, 16})
        all.push_back({rows, columns, distance, shift_B});
    }
  }
  return all;
}

// Ranges of two workers over `count` rows: all rows, two parts, a part of the rows, no row.
std::vector<std::vector<Range>> partitions(std::int64_t count) {
  return {{{0, count}},
          {{0, count / 3}, {count / 3, count}},
          {{count / 4, count / 2}, {count / 2, count - 1}},
          {{count, count}}};
}

// Arrays of these lengths; each begins `shift_B` further from its fence than the one before.
template <class T>
struct Planes {
  Planes(const Trial& t, const std::vector<std::int64_t>& lengths)
      : before{values(t, lengths, 0), values(t, lengths, 1), values(t, lengths, 2)},
        arrays{Fenced<T>(before[0]), Fenced<T>(before[1]), Fenced<T>(before[2])} {
    args.streams = static_cast<int>(lengths.size());
    for (int k = 0; k < args.streams; ++k) args.stream[k] = arrays[k].data();
    args.rows = t.rows;
    args.columns = t.columns;
    args.distance = t.distance;
    args.alpha = kAlpha;
  }
  static std::vector<T> values(const Trial& t, const std::vector<std::int64_t>& lengths,
                               std::size_t k) {
    if (k >= lengths.size()) return {};
    const auto salt = static_cast<std::int64_t>(k);
    return scattered_values<T>(lengths[k] + salt * t.shift_B / std::int64_t{sizeof(T)}, salt, 64);
  }

  std::vector<T> before[3];
  Fenced<T> arrays[3];
  StreamingArgs args;
};

template <class T>
void check(const RegisteredEntry& entry, const Trial& t, const std::vector<Range>& parts) {
  const bool stencil = std::string(entry.kernel) == "loops.stencil";
  const std::int64_t all = t.rows * t.columns;
  Planes<T> planes(t, stencil ? std::vector{all, all} : std::vector{t.rows, all, t.columns});
  const auto& [x0, x1, x2] = planes.before;
  const auto at = [](const std::vector<T>& x, std::int64_t i) {
    return static_cast<double>(x[static_cast<std::size_t>(i)]);
  };
  std::vector<T> wanted = x0;
  for (std::size_t worker = 0; worker < parts.size(); ++worker) {
    entry.body(&planes.args, parts[worker], static_cast<int>(worker));
    for (std::int64_t row = parts[worker].begin; row < parts[worker].end; ++row) {
      if (stencil) {  // an iteration is an inner row
        for (std::int64_t c = 1; c + 1 < t.columns; ++c) {
          const std::int64_t i = (row + 1) * t.columns + c;
          wanted[static_cast<std::size_t>(i)] =
              static_cast<T>(kAlpha * (at(x1, i) + at(x1, i - 1) + at(x1, i + 1) +
                                       at(x1, i - t.columns) + at(x1, i + t.columns)));
        }
      } else {  // a column of A is contiguous
        double sum = at(x0, row);
        for (std::int64_t c = 0; c < t.columns; ++c) sum += at(x1, c * t.rows + row) * at(x2, c);
        wanted[static_cast<std::size_t>(row)] = static_cast<T>(sum);
      }
    }
  }
  EXPECT_EQ(planes.arrays[0].values(), wanted);
  EXPECT_EQ(planes.arrays[1].values(), x1);
  EXPECT_EQ(planes.arrays[2].values(), x2);
}

class Planar : public ::testing::TestWithParam<RegisteredEntry> {};

TEST_P(Planar, FollowsItsDefinition) {
  const bool stencil = std::string(GetParam().kernel) == "loops.stencil";
  for (const Trial& t : trials()) {
    for (const std::vector<Range>& parts : partitions(stencil ? t.rows - 2 : t.rows)) {
      with_types(GetParam(), [&]<class T, class>() { check<T>(GetParam(), t, parts); });
      if (HasFailure()) {
        FAIL() << t.rows << " x " << t.columns << ", distance " << t.distance << ", shift "
               << t.shift_B << ", from " << parts[0].begin << " to " << parts[0].end;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllEntries, Planar,
                         ::testing::ValuesIn(entries_of({"loops.stencil", "loops.matvec"})),
                         name_of);

}  // namespace
}  // namespace memkern
