/*
anywhere.cpp -- probe --anywhere: a table by layer, the tokens that get most, what stands out; the
object of --json. A probe of one token repeated is compared with what the paper proves of it.
*/
#include "anywhere.h"
#include "../run/probe_data.h"
#include "../flags.h"
#include "../log.h"
#include "cell.h"

// A field of all heads.
struct FieldRow { const char* key; Summary summary; std::vector<double> heads; };

static std::vector<FieldRow> field_rows(const Anywhere& a) {
    std::vector<FieldRow> rows;
    const auto add = [&](const char* key, Summary summary, Tally AnyTally::*field) {
        rows.push_back({ key, summary, {} });
        for (auto& layer : a.layers) {
            for (auto& head : layer) { rows.back().heads.push_back((head.*field).as(summary)); }
        }
    };
    #define X(field, summary, ...) add(#field, summary, &AnyTally::field);
    ANYWHERE(X)
    #undef X
    return rows;
}

// Folds some of the numbers of a row into one.
static double summary_of(const FieldRow& row, size_t from, size_t n) {
    Tally all;
    for (size_t i = from; i < from + n; i++) { all.add(row.heads[i]); }
    return all.as(row.summary);
}

// Prints a line for each layer, of the columns that have numbers.
static void print_heads(const Model* m, std::vector<FieldRow> rows) {
    const auto empty = [](auto& row) { return std::isnan(summary_of(row, 0, row.heads.size())); };
    rows.erase(std::remove_if(rows.begin(), rows.end(), empty), rows.end());
    printf("By layer, the mean of the heads; of score and lse the largest, of output the smallest\n"
           "layer");
    for (auto& row : rows) { printf(" %9s", row.key); }
    for (int l = 0; l < m->sizes.L; l++) {
        if (!m->sizes.has_attention(l)) { continue; }
        printf("\n%5d", l);
        const size_t from = m->sizes.attending(l) * m->sizes.NH;
        for (auto& row : rows) { print_cells({ summary_of(row, from, m->sizes.NH) }); }
    }
    printf("\n");
}

// Tokens in a table: alpha, other numbers, how many places, the id. Those of fewer than three
// places are left out, and all but the ten largest.
typedef std::vector<Vector> TokenRows;

static void add_row(TokenRows* rows, const Vector& row) {
    if (row.end()[-2] < 2.5) { return; }
    rows->push_back(row);
    std::sort(rows->rbegin(), rows->rend());
    if (rows->size() > 10) { rows->pop_back(); }
}

static void print_rows(const char* columns, const TokenRows& rows, const Tokenizer& tok) {
    printf("%s     count  token\n", columns);
    for (auto& row : rows) {
        print_cells(Vector(row.begin(), row.end() - 1));
        printf("  %s\n", quoted_token(tok, row.back()).c_str());
    }
}

// Writes the rows for --json, each from the id to alpha.
static std::string json_rows(const TokenRows& rows) {
    std::vector<std::string> lists;
    for (auto& row : rows) { lists.push_back(json_array(Vector(row.rbegin(), row.rend()))); }
    return json_list(lists);
}

static TokenRows largest_ids(const Anywhere& a) {
    TokenRows rows;
    for (auto& id : a.ids) {
        const IdSums& x = id.second;
        add_row(&rows, { x.given / x.queries, x.count, (double)id.first });
    }
    return rows;
}

static TokenRows largest_secondary(const Anywhere& a) {
    TokenRows rows;
    const double least = 0.9;                    // as in the code of the paper
    for (auto& found : secondary_sinks(a.like, a.text, least)) {
        const Vector life(found.first.begin(), found.first.end());
        const Tally& cosine = found.second.cosine;
        add_row(&rows, { found.second.alpha.as(MEAN), cosine.as(MEAN), life[1], life[2], cosine.n,
                         life[0] });
    }
    return rows;
}

// Lists by layer the channels of h that are large at nearly all tokens, or at token 1 only.
static std::vector<std::string> large_channels(const Anywhere& a, bool first_alone) {
    std::vector<std::string> layers;
    for (size_t l = 0; l < a.large[0].size(); l++) {
        std::vector<double> channels;
        for (size_t c = 0; c < a.large[0][l].size(); c++) {
            const double anywhere = a.large[0][l][c];
            const bool first = a.large[1][l][c] >= 0.9 && anywhere <= 0.1;
            if (first_alone ? first : anywhere >= 0.9) { channels.push_back(c); }
        }
        layers.push_back(json_array(channels));
    }
    return layers;
}

static void print_channels(const std::vector<std::string> (&channels)[2]) {
    std::string before = "[][]";
    for (size_t l = 0; l < channels[0].size(); l++) {
        const std::string now = channels[0][l] + channels[1][l];
        if (now != before) {
            printf("from layer %zu on, channels of h that are large at nearly all tokens: %s; at "
                   "token 1 only: %s\n", l, channels[0][l].c_str(), channels[1][l].c_str());
        }
        before = now;
    }
}

// Says what the paper proves of one token repeated, and how near the model comes: 4 of the layers
// that rotate, 1 to 3 of the others.
static void print_propositions(const Model* m, const Anywhere& a) {
    Tally xi, of_bound, off;
    int below = 0;
    for (auto& layer : a.layers) {
        for (auto& head : layer) {
            xi.add(head.xi.as(LARGEST));
            (head.xi.n ? of_bound : off).add(head.proposition.as(LARGEST));
            below += head.bound.as(LARGEST) < a.eps;
        }
    }
    if (!of_bound.n && !off.n) {
        printf("Propositions 1 to 4 need softmax, two tokens or more, and positions that are not "
               "in h\n");
    }
    if (of_bound.n) {
        printf("Proposition 4 (rotary): no weight is above e^2xi / (e^2xi + t - 1). Measured: xi "
               "is %.4g or less,\nthe largest weight at t = %d %.4g of its bound. The bound is "
               "below %g at t = %d in %d of %g heads\n",
               xi.most, a.text.T, of_bound.most, a.eps, a.text.T, below, of_bound.n);
    }
    if (off.n) {
        const char* name = m->sizes.pe.rotary ? "nope" : pe_of(m->arch).name;
        printf("Propositions 1 to 3 (%s): a weight is e^g(t-i) / sum e^g(t-j), where a score gets "
               "g.\nMeasured: no weight is off by more than %.2g\n", name, off.most);
    }
}

void probe_anywhere(Model* m, const Flags& f, const ProbeInput& in, int T, JsonObject* o) {
    const bool repeated = f.probe_input == INPUT_repeated;
    if (!f.anywhere && !repeated) { return; }
    const Anywhere a = anywhere_measure(m, { in.x.data(), in.n, T }, eps_list(f)[0], repeated);
    progress_clear();
    const std::vector<FieldRow> rows = field_rows(a);
    const TokenRows ids = largest_ids(a);
    const TokenRows secondary = largest_secondary(a);
    const std::vector<std::string> channels[2] = { large_channels(a, false),
                                                   large_channels(a, true) };
    std::vector<double> kinds(4);
    for (auto& layer : a.layers) {
        for (auto& head : layer) { kinds[head.kind()]++; }
    }
    if (f.anywhere) {
        print_heads(m, rows);
        printf("Of the heads that have a sink in most sequences %g write next to nothing by it "
               "(NOP, value below\n0.5), %g the same everywhere (broadcast, rank below 2), %g "
               "something else\n", kinds[1], kinds[2], kinds[3]);
        printf("The tokens that get most attention, not counting token 1:\n");
        const Tokenizer tok = tokenizer_shown(f.tokenizer, m->arch.V);
        print_rows("     alpha", ids, tok);
        printf("Secondary sinks: the cosine of their h and that of token 1 is above 0.9 from the "
               "layer of birth\nto that of death, and token 1 is massive there:\n");
        print_rows("     alpha    cosine     birth     death", secondary, tok);
        print_channels(channels);
    }
    if (repeated) { print_propositions(m, a); }
    JsonObject found;
    for (auto& row : rows) { found.json(row.key, json_matrix(row.heads, m->sizes.NH)); }
    found.array("kinds", kinds);
    found.json("ids", json_rows(ids));
    found.json("secondary", json_rows(secondary));
    found.json("channels", json_list(channels[0]));
    found.json("channels_first", json_list(channels[1]));
    o->json("anywhere", found.all());
}
