// The hopping term: every body on fields that end at an inaccessible page, compared with 4 x 4 spin
// matrices, and whole cases with several workers, in which the thread sanitizer detects races.
#include "families/dw/args.hpp"

#include <complex>

#include "support.hpp"

namespace memkern {
namespace {

using namespace testing;

using Complex = std::complex<double>;

constexpr int kDirections = 8;
constexpr int kSpinor = 12;  // complex numbers
constexpr int kMatrix = 9;
constexpr double kBefore = -777;  // in results before anything is written

// gamma_x, gamma_y, gamma_z, gamma_t in Grid's chiral basis.
const Complex kI{0, 1};
const Complex kGamma[4][4][4] = {
    {{0, 0, 0, kI}, {0, 0, kI, 0}, {0, -kI, 0, 0}, {-kI, 0, 0, 0}},
    {{0, 0, 0, -1}, {0, 0, 1, 0}, {0, 1, 0, 0}, {-1, 0, 0, 0}},
    {{0, 0, kI, 0}, {0, 0, 0, -kI}, {-kI, 0, 0, 0}, {0, kI, 0, 0}},
    {{0, 0, 1, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, 0}},
};

// The layout of an entry's fields, parsed from its form.
struct Form {
  explicit Form(const RegisteredEntry& e) : real_B(std::string(e.dtype) == "float64" ? 8 : 4) {
    std::istringstream words(e.template_variant);
    std::string layout, lanes, bits;
    std::getline(words, layout, '/');
    if (layout == "lexicographic") return;
    std::getline(words, lanes, '/');
    std::getline(words, bits);
    split = layout == "RRII";
    shared = lanes == "s";
    reals = std::stoll(bits) / 8 / real_B;
  }
  std::int64_t lanes() const { return split ? reals : reals / 2; }
  std::int64_t link_lanes() const { return shared ? 1 : lanes(); }
  // Position of part 0 (real) or 1 (imaginary) of complex number `k` of a lane, with `of` lanes.
  std::int64_t place(std::int64_t k, std::int64_t of, std::int64_t lane, int part) const {
    return split ? (2 * k + part) * of + lane : 2 * (k * of + lane) + part;
  }

  std::int64_t real_B;
  bool split = true;
  bool shared = true;
  std::int64_t reals = 1;
};

// Sites with pseudo-random neighbours, visited in pseudo-random order, and small integers in all
// fields, so that no sum is rounded.
struct Fields {
  Fields(const Form& its_form, std::int64_t site_count, std::int64_t vectors)
      : form(its_form), sites(site_count), inner(vectors), order(permutation(site_count, 1)) {
    for (std::int64_t i = 0; i < site_count * kDirections; ++i) {
      neighbours.push_back(scattered(i, 2, 2 * site_count));
    }
    for (int k = 0; k < kDirections; ++k) lanes.push_back(permutation(its_form.lanes(), 30 + k));
    links.resize(at(site_count * kDirections * kMatrix * its_form.link_lanes() * 2));
    for (std::int64_t i = 0; i < std::ssize(links); ++i) {
      links[at(i)] = static_cast<double>(scattered(i, 4, 9) - 4);
    }
    psi.resize(at(site_count * vectors * kSpinor * its_form.lanes() * 2));
    for (std::int64_t i = 0; i < std::ssize(psi); ++i) {
      psi[at(i)] = static_cast<double>(scattered(i, 5, 19) - 9);
    }
  }

  // Permutations of reals, as bodies expect them.
  Integers permutations() const {
    Integers all;
    for (const Integers& row : lanes) {
      for (std::int64_t i = 0; i < form.reals; ++i) {
        all.push_back(form.split ? row[at(i)] : 2 * row[at(i / 2)] + i % 2);
      }
    }
    return all;
  }

  std::int64_t place(std::int64_t site, std::int64_t s, int spin, int colour, std::int64_t lane,
                     int part) const {
    const std::int64_t k = (site * inner + s) * kSpinor + 3 * spin + colour;
    return form.place(k, form.lanes(), lane, part);
  }
  Complex spinor(std::int64_t site, std::int64_t s, int spin, int colour, std::int64_t lane) const {
    return {psi[at(place(site, s, spin, colour, lane, 0))],
            psi[at(place(site, s, spin, colour, lane, 1))]};
  }
  Complex link(std::int64_t site, int direction, int row, int column, std::int64_t lane) const {
    const std::int64_t k = (site * kDirections + direction) * kMatrix + 3 * row + column;
    const std::int64_t of = form.link_lanes();
    const std::int64_t its = form.shared ? 0 : lane;
    return {links[at(form.place(k, of, its, 0))], links[at(form.place(k, of, its, 1))]};
  }

  // The plain formula for visits [begin, end); kBefore elsewhere.
  std::vector<double> result(std::int64_t begin, std::int64_t end) const {
    std::vector<double> all(psi.size(), kBefore);
    for (std::int64_t visit = begin; visit < end; ++visit) {
      for (std::int64_t s = 0; s < inner; ++s) {
        for (std::int64_t lane = 0; lane < form.lanes(); ++lane) add_site(visit, s, lane, all);
      }
    }
    return all;
  }

  Form form;
  std::int64_t sites;
  std::int64_t inner;
  Integers order;
  Integers neighbours;
  std::vector<Integers> lanes;
  std::vector<double> links;
  std::vector<double> psi;

 private:
  void add_site(std::int64_t visit, std::int64_t s, std::int64_t lane,
                std::vector<double>& all) const {
    Complex sum[4][3] = {};
    for (int k = 0; k < kDirections; ++k) {
      const std::int64_t around = neighbours[at(visit * kDirections + k)];
      const bool crosses = around % 2 != 0 && !form.shared;
      const std::int64_t from = crosses ? lanes[at(k)][at(lane)] : lane;
      const double sign = k < 4 ? 1 : -1;
      for (int spin = 0; spin < 4; ++spin) {
        for (int b = 0; b < 3; ++b) {
          Complex turned = 0;
          for (int other = 0; other < 4; ++other) {
            const Complex gamma = kGamma[k % 4][spin][other];
            turned += (Complex(spin == other ? 1 : 0) + sign * gamma) *
                      spinor(around / 2, s, other, b, from);
          }
          for (int a = 0; a < 3; ++a) {
            sum[spin][a] += link(order[at(visit)], k, a, b, lane) * turned;
          }
        }
      }
    }
    for (int spin = 0; spin < 4; ++spin) {
      for (int a = 0; a < 3; ++a) {
        all[at(place(order[at(visit)], s, spin, a, lane, 0))] = sum[spin][a].real();
        all[at(place(order[at(visit)], s, spin, a, lane, 1))] = sum[spin][a].imag();
      }
    }
  }
};

struct Way {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t distance = 0;
  bool into_l1 = false;
  std::int64_t prefetched = 0xff;
};

// Runs a body on copies of the fields, each of which ends at an inaccessible page. I is the type of
// the permutations.
template <class T, class I>
void run_fenced(const RegisteredEntry& e, const Fields& f, const Way& way) {
  Fenced<T> links(as<T>(f.links));
  Fenced<T> psi(as<T>(f.psi));
  Fenced<T> result(std::vector<T>(f.psi.size(), T{kBefore}));
  Fenced<std::int32_t> order(as<std::int32_t>(f.order));
  Fenced<std::int32_t> neighbours(as<std::int32_t>(f.neighbours));
  Fenced<I> permutations(as<I>(f.permutations()));
  DwArgs args;
  args.links = links.data();
  args.psi = psi.data();
  args.result = result.data();
  args.order = order.data();
  args.neighbours = neighbours.data();
  args.permutations = permutations.data();
  args.sites = f.sites;
  args.inner = f.inner;
  args.distance = way.distance;
  args.into_l1 = way.into_l1;
  args.prefetched = way.prefetched;
  e.body(&args, {way.begin, way.end}, 0);
  EXPECT_EQ(as<double>(result.values()), f.result(way.begin, way.end));
  EXPECT_EQ(as<double>(psi.values()), f.psi);
  EXPECT_EQ(as<double>(links.values()), f.links);
  EXPECT_EQ(as<std::int64_t>(order.values()), f.order);
  EXPECT_EQ(as<std::int64_t>(neighbours.values()), f.neighbours);
}

std::vector<RegisteredEntry> all_entries() { return entries_of({"dw.hop"}); }

class Bodies : public ::testing::TestWithParam<RegisteredEntry> {
 protected:
  static void run(const Fields& f, const Way& way) {
    with_types(GetParam(), [&]<class T, class>() {
      using I = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
      run_fenced<T, I>(GetParam(), f, way);
    });
    if (HasFailure()) {
      FAIL() << f.sites << " sites, " << f.inner << " vectors of s, visits " << way.begin << " to "
             << way.end << ", distance " << way.distance << (way.into_l1 ? " into L1" : "")
             << ", prefetched " << way.prefetched;
    }
  }
};

TEST_P(Bodies, MatchTheFormula) {
  const Form form(GetParam());
  for (const std::int64_t sites : {1, 2, 5, 12}) {
    for (const std::int64_t inner : {1, 2, 3}) run({form, sites, inner}, {0, sites});
  }
}

TEST_P(Bodies, ChangeNoOtherSites) {
  const Fields f(Form(GetParam()), 11, 2);
  for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 1}, {3, 7}, {10, 11}, {5, 5}, {11, 11}}) {
    run(f, {begin, end});
    run(f, {begin, end, 2});
  }
}

// Tables end at an inaccessible page: lookups of addresses to prefetch must not go beyond it.
TEST_P(Bodies, ReadNoTablesBeyondTheirEnd) {
  const Fields f(Form(GetParam()), 7, 2);
  for (const std::int64_t distance : {1, 3, 6, 7, 8, 1000}) {
    for (const bool into_l1 : {false, true}) {
      run(f, {0, 7, distance, into_l1});
      run(f, {4, 7, distance, into_l1});
      run(f, {0, 7, distance, into_l1, 0b11001110});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Bodies, ::testing::ValuesIn(all_entries()), [](const auto& tried) {
  std::string form = tried.param.template_variant;
  std::replace(form.begin(), form.end(), '/', '_');
  return testing::name_of(tried) + "_" + form;
});

struct Request : Given {
  explicit Request(const RegisteredEntry& e, std::int64_t sites = 12, std::int64_t inner = 2)
      : fields(Form(e), sites, inner) {
    const Form& form = fields.form;
    kernel = "dw.hop";
    dtype = e.dtype;
    integers = {{"sites", sites},        {"inner", inner},
                {"reals", form.reals},   {"split", form.split ? 1 : 0},
                {"shared", form.shared}, {"prefetch", 0},
                {"into_l1", 0},          {"prefetched", 0xff}};
    indices = {{"order", fields.order},
               {"neighbours", fields.neighbours},
               {"permutations", fields.permutations()}};
  }
  Fields fields;
};

// One entry of each layout, kind of lanes, variant and type.
std::vector<RegisteredEntry> one_of_each() {
  std::map<std::string, RegisteredEntry> kinds;
  for (const RegisteredEntry& e : all_entries()) {
    const std::string form = e.template_variant;
    kinds.insert({std::string(e.variant) + e.dtype + form.substr(0, form.rfind('/')), e});
  }
  std::vector<RegisteredEntry> all;
  for (const auto& [kind, entry] : kinds) all.push_back(entry);
  return all;
}

TEST(Prepare, RefusesWrongInputInASentence) {
  std::vector<Wrong<Request>> wrong = {
      {[](Request& r) { r.kernel = "dw.jump"; }, "no kernel 'dw.jump'"},
      {[](Request& r) { r.dtype = "int64"; }, "dtype 'int64' is not float32 or float64"},
      {set("sites", 13), "order must have 13 entries, not 12"},
      {set("sites", 11), "order must have 11 entries, not 12"},
      {set("sites", std::int64_t{1} << 30), "too long for int32"},
      {set("sites", kMax), "too long for int32"},
      {set("inner", kMax), "64 bits"},
      {set("reals", kMax), "64 bits"},
      {set("reals", std::int64_t{1} << 55), "64 bits"},
      {set("reals", std::int64_t{1} << 56), "64 bits"},
      {set("prefetch", -1), "prefetch must be at least 0, not -1"},
      {put("order", 3, 12), "order[3] is 12, outside 0 to 11"},
      {put("order", 0, -1), "order[0] is -1, outside 0 to 11"},
      {put("order", 11, kMax), "outside 0 to 11"},
      {put("neighbours", 0, 24), "neighbours[0] is 24, outside 0 to 23"},
      {put("neighbours", 95, -1), "neighbours[95] is -1, outside 0 to 23"},
      {put("neighbours", 5, std::int64_t{1} << 32), "outside 0 to 23"},
      {put("permutations", 0, -1), "permutations[0] is -1, outside 0"},
      {put("permutations", 7, 64), "permutations[7] is 64, outside 0"},
  };
  for (const char* name : {"order", "neighbours", "permutations"}) {
    wrong.push_back({[=](Request& r) { r.indices.erase(name); },
                     std::string("the input '") + name + "' is missing"});
    wrong.push_back(
        {[=](Request& r) { r.indices[name].clear(); }, std::string(name) + " must not be empty"});
    wrong.push_back(
        {[=](Request& r) { r.indices[name].pop_back(); }, std::string(name) + " must have"});
    wrong.push_back(
        {[=](Request& r) { r.indices[name].push_back(0); }, std::string(name) + " must have"});
  }
  for (const RegisteredEntry& e : one_of_each()) {
    SCOPED_TRACE(::testing::PrintToString(e));
    expect_refused(Request(e), wrong);
  }
}

// With one site, the links are the first array that is too large.
TEST(Prepare, RefusesLinksThatDoNotFit64Bits) {
  for (const RegisteredEntry& e : one_of_each()) {
    Request r(e, 1, 1);
    r.integers["shared"] = 0;
    r.integers["reals"] = std::int64_t{1} << 56;
    EXPECT_TRUE(is_refused([&] { r.prepare(team_of(1)); }, "64 bits"));
  }
}

TEST(Prepare, RequiresTheLexicographicFormForOneReal) {
  for (const RegisteredEntry& e : one_of_each()) {
    if (Form(e).reals > 1) continue;
    for (const char* name : {"split", "shared"}) {
      Request r(e);
      r.integers[name] = 0;
      EXPECT_TRUE(is_refused([&] { r.prepare(team_of(1)); }, "a vector of one real"));
    }
  }
}

// A body may read beyond the end of fields of another form.
TEST(Prepare, RunsOnlyEntriesOfTheFormOfTheFields) {
  for (const RegisteredEntry& e : one_of_each()) {
    Request r(e);
    const auto problem = r.prepare(team_of(1));
    EXPECT_EQ(problem->array("links").columns, std::ssize(r.fields.links));
    EXPECT_EQ(problem->array("psi").columns, std::ssize(r.fields.psi));
    EXPECT_EQ(problem->array("result").columns, std::ssize(r.fields.psi));
    EXPECT_EQ(problem->count(), 12);
    EXPECT_EQ(problem->index_dtype(), "");
    for (const RegisteredEntry& other : all_entries()) {
      if (std::string(other.dtype) != e.dtype) continue;
      EXPECT_EQ(problem->runs(other), std::string(other.template_variant) == e.template_variant)
          << e.template_variant << " by " << other.template_variant;
    }
  }
}

TEST(Prepare, LimitsThePrefetchToTheSites) {
  Request r(all_entries().front());
  r.integers["prefetch"] = kMax;
  const auto problem = r.prepare(team_of(1));
  EXPECT_EQ(static_cast<const DwArgs*>(problem->args())->distance, 12);
}

void copy_in(Problem& problem, const std::string& name, const std::vector<double>& values) {
  if (problem.array(name).type == DType::F64) return problem.copy_in(name, values.data());
  problem.copy_in(name, as<float>(values).data());
}

std::vector<double> result_of(const Problem& problem) {
  const Array& a = problem.array("result");
  std::vector<double> all;
  for (std::int64_t i = 0; i < a.columns; ++i) all.push_back(problem.peek(a, i));
  return all;
}

void run_by(const Team& team, const RegisteredEntry& e, std::int64_t distance) {
  constexpr Schedule kWhole{Schedule::Kind::Static, 0};
  Request r(e, 53, 3);
  r.integers["prefetch"] = distance;
  const auto problem = r.prepare(team);
  const std::vector<double> wanted = r.fields.result(0, 53);
  const auto run = [&](Repetition repetition, Schedule schedule) {
    problem->fill(true);
    copy_in(*problem, "links", r.fields.links);
    copy_in(*problem, "psi", r.fields.psi);
    sample(team, e, *problem, 3, repetition, schedule);
    EXPECT_EQ(result_of(*problem), wanted);
  };
  run(Repetition::Fork, kWhole);
  run(Repetition::Barrier, kWhole);
  run(Repetition::Free, {Schedule::Kind::Static, 4});
  run(Repetition::Fork, {Schedule::Kind::Dynamic, 2});
}

TEST(Workers, GiveTheSameResultInEveryWay) {
  for (const int workers : {1, 2, 3}) {
    const Team team({workers, "none"});
    for (const RegisteredEntry& e : one_of_each()) {
      SCOPED_TRACE(::testing::PrintToString(e));
      run_by(team, e, workers - 1);
    }
  }
}

// Bodies use aligned loads and stores of vectors.
TEST(Workers, RunAtEveryAlignedOffset) {
  for (const RegisteredEntry& e : all_entries()) {
    SCOPED_TRACE(::testing::PrintToString(e));
    for (const std::int64_t offset_B : {8, 16, 32, 64, 200}) {
      Request r(e, 5, 1);
      std::unique_ptr<Problem> problem;
      try {
        problem = r.prepare(team_of(1), {Pages::Default, {}, offset_B});
      } catch (const InputError& error) {
        EXPECT_TRUE(contains(error.what(), "offset"));
        EXPECT_NE(offset_B % (Form(e).reals * Form(e).real_B), 0);
        continue;
      }
      copy_in(*problem, "links", r.fields.links);
      copy_in(*problem, "psi", r.fields.psi);
      const auto& args = *static_cast<const DwArgs*>(problem->args());
      for (const void* field : {args.links, args.psi, static_cast<const void*>(args.result)}) {
        const std::int64_t vector_B = Form(e).reals * Form(e).real_B;
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(field) % at(vector_B), 0U) << offset_B;
      }
      e.body(&args, {0, 5}, 0);
      EXPECT_EQ(result_of(*problem), r.fields.result(0, 5));
    }
  }
}

}  // namespace
}  // namespace memkern
