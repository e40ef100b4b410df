/*
change.h -- what a run of eval changes of a model: numbers anywhere in it, bits, and what a query
still sees.

A model runs its stages as ever; the change comes before, after or in place of a stage
(Model::around). Attention that sees other keys is computed here, a row at a time in host memory,
with the mathematics of reference.h: any backend can be asked.

    1 picks        sets of layers, tokens, channels
    2 edits        PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE
    3 bits         rounding to few values and back
    4 attention    streaming, eviction, edits of the weights
    5 a change     all of these, around the stages of a layer

Layers, heads and channels count from 0, tokens from 1, as in probe.
*/
#ifndef CHANGE_H
#define CHANGE_H
#include <limits.h>
#include <map>

// ----------------------------------------------------------------------------
// 1 picks: 3   1,4   2..5   2..   * (all)   top2 (the two largest)
struct Picks {
    std::vector<std::pair<long, long>> ranges;
    int top = 0;

    bool has(long i) const {
        for (auto& r : ranges) { if (r.first <= i && i <= r.second) { return true; } }
        return false;
    }

    // does it name one of n or more? A range without an end may begin below
    bool beyond(long n) const {
        for (auto& r : ranges) {
            if (r.first >= n || (r.second < LONG_MAX && r.second >= n)) { return true; }
        }
        return false;
    }

    long last() const {
        long most = 0;
        for (auto& r : ranges) { most = std::max(most, r.second); }
        return most;
    }
};

// is the text such a set? then *p is it
static bool picks_parse(const std::string& text, Picks* p) {
    long a = 0, b = 0;
    *p = Picks();
    if (text == "*") { p->ranges.push_back({ 0, LONG_MAX }); return true; }
    if (text.compare(0, 3, "top") == 0) {
        p->top = parse_long(text.substr(3), &a) && a > 0 && a < 1 << 20 ? a : 0;
        return p->top > 0;
    }
    for (auto& word : split(text, ',')) {
        const size_t dots = word.find("..");
        const std::string upper = dots == std::string::npos ? word : word.substr(dots + 2);
        if (!parse_long(word.substr(0, dots), &a) || a < 0) { return false; }
        b = LONG_MAX;
        if (!upper.empty() && !parse_long(upper, &b)) { return false; }
        if (b < a) { return false; }
        p->ranges.push_back({ a, b });
    }
    return !p->ranges.empty();
}

// ---- activations in host memory, in the numbers that the reference computes with
typedef std::vector<acc> Host;

static Host host_read(const real* x, size_t n) {
    std::vector<real> raw(x ? n : 0);
    if (x) { ops::to_host(raw.data(), x, n * sizeof(real)); }
    return Host(raw.begin(), raw.end());
}

static void host_write(real* x, const Host& host) {
    const std::vector<real> raw(host.begin(), host.end());
    ops::to_device(x, raw.data(), raw.size() * sizeof(real));
}

// (B, T, width) numbers, in rows `stride` apart; `group` channels are one of what a set counts: 1,
// or a head's HS. Row `skip` is that of the first token. With a base, what is meant is x - base
struct Rows {
    Host* x; const Host* base;
    int B, T, skip, stride, offset, width, group;

    size_t at(int b, int t, int c) const { return ((size_t)b * T + t) * stride + offset + c; }
    acc get(size_t i) const         { return base ? (*x)[i] - (*base)[i] : (*x)[i]; }
    void set(size_t i, acc v) const { (*x)[i] = base ? (*base)[i] + v : v; }
};

// ----------------------------------------------------------------------------
// 2 edits: PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE
enum Place {
    PLACE_pe, PLACE_q, PLACE_k, PLACE_v, PLACE_A,
    PLACE_head, PLACE_gate, PLACE_attn, PLACE_mlp, PLACE_h
};
struct PlaceRow { const char* name; bool by_head; StageRole stage; const char* help; };
static const PlaceRow PLACES[] = { // in the order in which a layer meets them
    { "pe",   false, ROLE_NONE,      "learned positions: pe:TOKENS, without LAYERS" },
    { "q",    true,  ROLE_ATTENTION, "queries, as attention reads them" },
    { "k",    true,  ROLE_ATTENTION, "keys, likewise" },
    { "v",    true,  ROLE_ATTENTION, "values" },
    { "A",    true,  ROLE_ATTENTION, "weights of these tokens in the rows of later ones" },
    { "head", true,  ROLE_ATTENTION, "outputs of the heads" },
    { "gate", true,  ROLE_GATE,      "the gate, after its sigmoid" },
    { "attn", false, ROLE_ATTN_OUT,  "what attention adds to the stream" },
    { "mlp",  false, ROLE_FFN_OUT,   "what the FFN adds to it" },
    { "h",    false, ROLE_FFN_OUT,   "the stream after a layer" },
};

// EDIT_MASK, of A only: the key is not seen, and the row sums to 1 without it
enum How { EDIT_NUMBER, EDIT_MEAN, EDIT_SCALE, EDIT_FROM, EDIT_MASK };
struct Edit {
    std::string text;
    Place place; Picks layers, tokens, channels;
    How how; double value; long from;
    long count = 0;                              // of sequences in `sums`
    std::map<int, std::vector<double>> sums;     // EDIT_MEAN: of a layer, (T, width)
};

// what is behind the = sign: a number, mean, xS, from T, mask. Is it one of these?
static bool edit_value(const std::string& text, Edit* e) {
    double v = 0;
    e->value = 0;
    e->from = 0;
    e->how = EDIT_NUMBER;
    if (text == "mean") { e->how = EDIT_MEAN; return true; }
    if (text == "mask") { e->how = EDIT_MASK; return e->place == PLACE_A; }
    if (text.compare(0, 4, "from") == 0) {
        const size_t at = text.find_first_not_of(' ', 4);
        e->how = EDIT_FROM;
        return at != std::string::npos && parse_long(text.substr(at), &e->from) && e->from >= 1;
    }
    if (text[0] == 'x') { e->how = EDIT_SCALE; }
    const bool number = parse_double(text.substr(text[0] == 'x'), &v) && std::isfinite(v) &&
                        !float_loses(v);
    e->value = v;
    return number;
}

[[noreturn]] static void edit_wrong(const std::string& text, const std::string& wanted) {
    die(EXIT_USER, "--edit: got '" + text + "', wanted " + wanted,
        "for example --edit 'h:2:1:top2=0'");
}

// one edit from its text; dies if it means nothing
static Edit edit_parse(const std::string& text) {
    Edit e;
    const size_t equals = text.rfind('=');
    const std::vector<std::string> part = split(text.substr(0, equals), ':');
    std::string names;
    int place = -1;
    for (auto& row : PLACES) {
        if (!part.empty() && part[0] == row.name) { place = &row - PLACES; }
        names += strf("%s%s (%s)", names.empty() ? " " : ", ", row.name, row.help);
    }
    if (equals == std::string::npos || place < 0) {
        edit_wrong(text, "PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE with a place of:" + names);
    }
    e.text = text;
    e.place = (Place)place;
    const size_t first = place == PLACE_pe ? 1 : 2;          // the field of TOKENS
    picks_parse("*", &e.layers);
    picks_parse("*", &e.channels);
    const bool layers =
        first == 1 || (part.size() > 1 && picks_parse(part[1], &e.layers) && !e.layers.top);
    const bool tokens = part.size() > first && picks_parse(part[first], &e.tokens) && !e.tokens.top;
    const bool channels = part.size() <= first + 1 || picks_parse(part[first + 1], &e.channels);
    if (!layers || !tokens || !channels || part.size() > first + 2) {
        edit_wrong(text, "sets such as 3, 1,4, 2..5, 2.. or * of layers, tokens and channels");
    }
    if (e.channels.top && PLACES[place].by_head) {
        edit_wrong(text, "top of channels: h, attn, mlp or pe");
    }
    if (!edit_value(text.substr(equals + 1), &e)) {
        edit_wrong(text, "a value: a number, mean, x0.5, from 2, or, of A, mask");
    }
    if (place == PLACE_A && (e.how == EDIT_MEAN || e.how == EDIT_FROM)) {
        edit_wrong(text, "for A a number, x0.5 or mask");
    }
    if (place == PLACE_pe && e.how == EDIT_MEAN) {
        edit_wrong(text, "for pe a number, x0.5 or from 2");
    }
    return e;
}

// which channels of a row the edit means
static std::vector<char> edit_channels(const Edit& e, const Rows& r, int b, int t) {
    std::vector<char> means(r.width);
    if (!e.channels.top) {
        for (int c = 0; c < r.width; c++) { means[c] = e.channels.has(c / r.group); }
        return means;
    }
    std::vector<int> order(r.width);
    for (int c = 0; c < r.width; c++) { order[c] = c; }
    const int top = std::min(e.channels.top, r.width);
    std::partial_sort(order.begin(), order.begin() + top, order.end(), [&](int i, int j) {
        return std::fabs(r.get(r.at(b, t, i))) > std::fabs(r.get(r.at(b, t, j)));
    });
    for (int k = 0; k < top; k++) { means[order[k]] = 1; }
    return means;
}

// writes what layer l has at the edit's place
static void edit_apply(const Edit& e, int l, const Rows& r) {
    Host row;
    for (int b = 0; b < r.B; b++) {
        const int from = r.skip + (int)e.from - 1;
        for (int c = 0; e.how == EDIT_FROM && c < r.width; c++) {
            if (c == 0) { row.clear(); }
            row.push_back(r.get(r.at(b, from, c)));
        }
        for (int t = r.skip; t < r.T; t++) {
            if (!e.tokens.has(t - r.skip + 1)) { continue; }
            const std::vector<char> means = edit_channels(e, r, b, t);
            for (int c = 0; c < r.width; c++) {
                if (!means[c]) { continue; }
                const size_t i = r.at(b, t, c);
                if (e.how == EDIT_NUMBER) { r.set(i, e.value); }
                if (e.how == EDIT_SCALE)  { r.set(i, e.value * r.get(i)); }
                if (e.how == EDIT_FROM)   { r.set(i, row[c]); }
                if (e.how == EDIT_MEAN) {
                    r.set(i, e.sums.at(l)[(size_t)t * r.width + c] / e.count);
                }
            }
        }
    }
}

// adds what is there to the sums that a mean is made of
static void edit_record(Edit* e, int l, const Rows& r) {
    std::vector<double>& sum = e->sums[l];
    sum.resize((size_t)r.T * r.width);
    for (int b = 0; b < r.B; b++) {
        for (int t = 0; t < r.T; t++) {
            for (int c = 0; c < r.width; c++) {
                sum[(size_t)t * r.width + c] += r.get(r.at(b, t, c));
            }
        }
    }
}

// ----------------------------------------------------------------------------
// 3 bits: numbers become one of 2^bits and are numbers again; everything else is computed as ever
enum Scope { BITS_STATIC, BITS_DYNAMIC, BITS_TOKEN };
static const char* const SCOPES[] = { "static", "dynamic", "token" };

// Weights: symmetric, a range for each output channel. What the products read: asymmetric. Keys and
// values: symmetric. Ranges of activations: `static`, of the tensor, as calibration found it;
// `dynamic`, of the tensor in this sequence; `token`, of this row, and of keys and values of this
// head. The first `keep` tokens stay as they are and count for no range
struct Bits {
    int weights = 0, inputs = 0, kv = 0;         // 0: as they are
    Scope scope = BITS_TOKEN;
    int keep = 0;
    bool calibrating = false;
    struct Range { double low, high; };
    std::map<std::pair<std::string, int>, Range> ranges;     // BITS_STATIC: by place and layer

    bool any() const { return weights || inputs || kv; }
};

// x on a grid of 2^bits values from low to high, of which one is 0;  symmetric: of 2^bits - 1
static double bits_round(double x, Bits::Range r, int bits, bool symmetric) {
    if (symmetric) {
        const double most = (1 << (bits - 1)) - 1, step = std::max(-r.low, r.high) / most;
        return step > 0 ? std::min(most, std::max(-most, nearbyint(x / step))) * step : 0;
    }
    const double low = std::min(r.low, 0.0), high = std::max(r.high, 0.0), most = (1 << bits) - 1;
    const double step = (high - low) / most;
    if (step <= 0) { return 0; }
    const double zero = nearbyint(-low / step);
    return (std::min(most, std::max(0.0, nearbyint(x / step) + zero)) - zero) * step;
}

// rounds one tensor of layer l; in calibration it only looks at it
static void bits_apply(Bits* q, const std::string& place, int l, const Rows& r, int bits,
                       bool symmetric) {
    auto each = [&](int b, int t0, int t1, int c0, int c1, auto f) {
        for (int t = t0; t < t1; t++) { for (int c = c0; c < c1; c++) { f(r.at(b, t, c)); } }
    };
    auto range_of = [&](int b, int t0, int t1, int c0, int c1) {
        Bits::Range range = { INFINITY, -INFINITY };
        each(b, t0, t1, c0, c1, [&](size_t i) {
            range.low = std::min<double>(range.low, r.get(i));
            range.high = std::max<double>(range.high, r.get(i));
        });
        return range;
    };
    auto round = [&](int b, int t0, int t1, int c0, int c1, Bits::Range range) {
        each(b, t0, t1, c0, c1,
             [&](size_t i) { r.set(i, bits_round(r.get(i), range, bits, symmetric)); });
    };
    const int first = std::min(r.T, r.skip + q->keep);
    for (int b = 0; b < r.B && first < r.T; b++) {
        const Bits::Range here = range_of(b, first, r.T, 0, r.width);
        if (q->calibrating) { // a running mean over sequences (Bondarenko et al. 2023)
            auto found = q->ranges.insert({ { place, l }, here }).first;
            found->second.low = 0.9 * found->second.low + 0.1 * here.low;
            found->second.high = 0.9 * found->second.high + 0.1 * here.high;
        } else if (q->scope == BITS_TOKEN) {
            for (int t = first; t < r.T; t++) {
                for (int c = 0; c < r.width; c += r.group) {
                    round(b, t, t + 1, c, c + r.group, range_of(b, t, t + 1, c, c + r.group));
                }
            }
        } else {
            round(b, first, r.T, 0, r.width,
                  q->scope == BITS_STATIC ? q->ranges.at({ place, l }) : here);
        }
    }
}

// rounds the weights of the products of all layers in place; returns what they were
static Host bits_weights(Model* m, int bits) {
    Host was(m->num_params);
    ops::to_host(was.data(), m->master, was.size() * sizeof(acc));
    Host now = was;
    for (auto& t : m->tensors) {
        if (!ends_with(t.name, "proj.weight")) { continue; }
        const long cols = t.shape[1];
        for (long row = t.at; row < t.at + t.count; row += cols) {
            double top = 0;
            for (long i = row; i < row + cols; i++) { top = std::max(top, fabs((double)was[i])); }
            for (long i = row; i < row + cols; i++) {
                now[i] = bits_round(was[i], { -top, top }, bits, true);
            }
        }
    }
    model_set(m, now.data());
    return was;
}

// ----------------------------------------------------------------------------
// 4 attention. Rows count from 0 here, and the sink token's is one of them

// Query i sees rows j < n and j >= i - W. With `cached`, positions are those in the cache: they
// stay as far apart in the window, but to the first n keys query i is at min(i, n + W). A
// layer's key and value depend only on what their own token saw, so one pass gives what
// StreamingLLM computes token by token
struct Stream { bool on = false; int n = 0, W = 0; bool cached = true; };

// Later queries see only `kept` of the first `prompt` rows, those of the highest scores, by
// key/value head
enum Policy { EVICT_streaming, EVICT_knorm, EVICT_observed, EVICT_snapkv, POLICIES };
static const char* const POLICY_NAMES[] = { "streaming", "knorm", "observed", "snapkv" };
enum FirstToken { FIRST_AS_SCORED, FIRST_KEPT, FIRST_DROPPED };
struct Evict {
    bool on = false;
    Policy policy = EVICT_streaming;
    int prompt = 0, kept = 0;
    FirstToken first = FIRST_AS_SCORED;
};
// of streaming; of snapkv (Li et al. 2024), whose window is shorter where the prompt is
enum { EVICT_FIRST = 4, SNAP_WINDOW = 64, SNAP_KERNEL = 5 };
static int snap_window(const Evict& e) {
    return std::max(1, std::min<int>(SNAP_WINDOW, e.prompt / 4));
}

// a query head as the reference has it, that sees what the run leaves it
struct EvalHead : ref::Head<Attn, Bias, Pe> {
    const Stream& stream; const Evict& evict; const std::vector<Edit>& edits;
    const std::vector<double>& angles; // of the pairs of channels that turn; empty: none does
    const std::vector<char>* kept;               // by row of the prompt; NULL: not decided yet
    int l, skip;
    Host turned;           // the query as the first n keys meet it, and the learned key

    EvalHead(const ref::Head<Attn, Bias, Pe>& head, const Stream& stream, const Evict& evict,
             const std::vector<Edit>& edits, const std::vector<double>& angles, int l, int skip)
        : ref::Head<Attn, Bias, Pe>(head), stream(stream), evict(evict), edits(edits),
          angles(angles), kept(NULL), l(l), skip(skip) {}

    // does the edit mean the weight of key j in row t? In its own never: that would be left empty.
    // The sink token's neither, which is no token
    bool edited(const Edit& e, int t, int j) const {
        return e.place == PLACE_A && j >= skip && j < t && e.layers.has(l) && e.channels.has(h) &&
               e.tokens.has(j - skip + 1);
    }

    bool sees_still(int t, int j) const {
        if (!sees(t, j)) { return false; }
        if (j == s.T) { return true; }
        if (stream.on && j >= stream.n && j < t - stream.W) { return false; }
        if (kept && j < evict.prompt && !(*kept)[j]) { return false; }
        for (auto& e : edits) { if (e.how == EDIT_MASK && edited(e, t, j)) { return false; } }
        return true;
    }

    // how much nearer query t is to the first n keys than it was, and to where it would not turn
    int nearer(int t) const {
        return stream.on && stream.cached ? std::max(0, t - stream.n - stream.W) : 0;
    }

    // q_t, turned back by so many positions
    void turn(int t, int by) {
        turned.assign(q(t), q(t) + s.HS);
        const int half = angles.size();
        for (int i = 0; i < half; i++) {
            const double co = cos(by * angles[i]), si = sin(by * angles[i]);
            const double a = turned[i], b = turned[i + half];
            turned[i] = a * co + b * si;
            turned[i + half] = b * co - a * si;
        }
    }

    acc score_still(int t, int j, int by) const {
        const bool star = j == s.T, learned = star && Bias::column == KEY_COLUMN;
        if (!by || (j >= stream.n && !learned)) { return score(t, j); }
        const acc bias = star ? acc(0) : attn_bias<Attn, Pe, acc>(s, t - by - j, h);
        return attn_capped<Attn>(ref::dot(turned.data(), k(j), s.HS) * acc(s.scale) + bias,
                                 acc(s.cap));
    }

    // A (T + 1) <- the weights of query t, 0 where it sees nothing; stat (2) as attention has it
    void weights(int t, Host* A, acc (&stat)[2]) {
        const int by = nearer(t);
        if (by) { turn(t, by); }
        acc m = attn_least<Attn, acc>(), sum = 0;
        A->assign(s.T + 1, 0);
        for (int j = 0; j <= s.T; j++) {
            if (!sees_still(t, j)) { continue; }
            (*A)[j] = score_still(t, j, by);
            m = max_(m, (*A)[j]);
        }
        for (int j = 0; j <= s.T; j++) {
            if (!sees_still(t, j)) { continue; }
            const acc w = attn_term<Attn>((*A)[j], m);
            sum += attn_mass<Attn>(w, acc(s.p));
            (*A)[j] = attn_share<Attn>(w);
        }
        const acc factor = attn_stat<Attn>(stat, m, sum, acc(s.p), attn_alpha<Attn, acc>(s));
        for (auto& w : *A) { w *= factor; }
        for (auto& e : edits) {
            for (int j = 0; j < t && e.place == PLACE_A; j++) {
                if (!edited(e, t, j)) { continue; }
                if (e.how == EDIT_NUMBER) { (*A)[j] = e.value; }
                if (e.how == EDIT_SCALE)  { (*A)[j] *= e.value; }
            }
        }
    }
};

// what the policy thinks of each row of the prompt, for one key/value head: `sums` of the weights
// that its rows had from all queries of the prompt (observed), or from the last of them (snapkv),
// over the heads of the group
static std::vector<double> evict_scores(const Evict& e, const std::vector<double>& sums,
                                        const EvalHead& head) {
    const int P = e.prompt, window = snap_window(e), newest = e.kept - EVICT_FIRST;
    std::vector<double> score(P);
    auto pooled = [&](int j) {                   // beyond the ends are zeros
        double sum = 0;
        for (int i = j - SNAP_KERNEL / 2; i <= j + SNAP_KERNEL / 2; i++) {
            sum += i >= 0 && i < P - window ? sums[i] : 0;
        }
        return sum / SNAP_KERNEL;
    };
    auto norm_of = [&](int j) { // in steps of 1e-5: equal keys are equal however they have turned
        const double squares = ref::dot(head.k(j), head.k(j), head.s.HS);
        return nearbyint(1e5 / 2 * log(squares));
    };
    auto readers = [&](int j) { // queries of the prompt that see row j
        int count = 0;
        for (int t = 0; t < P; t++) { count += head.sees(t, j); }
        return count;
    };
    for (int j = 0; j < P; j++) {
        switch (e.policy) {
            case EVICT_streaming: score[j] = j < EVICT_FIRST || j >= P - newest; break;
            case EVICT_knorm:     score[j] = -norm_of(j); break;
            case EVICT_observed:  score[j] = sums[j] / readers(j); break;
            default:              score[j] = j < P - window ? pooled(j) : INFINITY;
        }
    }
    if (e.first == FIRST_KEPT)    { score[head.skip] = INFINITY; }
    if (e.first == FIRST_DROPPED) { score[head.skip] = -INFINITY; }
    if (head.skip) { score[0] = INFINITY; } // a sink token is no token
    return score;
}

// the rows that stay: the `kept` highest scores; of equals the earlier
static std::vector<char> evict_choose(const Evict& e, const std::vector<double>& score) {
    std::vector<int> order(e.prompt);
    for (int j = 0; j < e.prompt; j++) { order[j] = j; }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score[a] > score[b]; });
    std::vector<char> kept(e.prompt);
    for (int k = 0; k < e.kept; k++) { kept[order[k]] = 1; }
    return kept;
}

// Computes attention of layer l with what the change leaves a query: act_qkv -> act_att, act_stat.
// Adds what every head gave the tokens, one for each sequence and head, to `seen`.
static void eval_attention(Model* m, int l, const Stream& stream, const Evict& evict,
                           const std::vector<Edit>& edits, std::vector<HeadMetrics>* seen) {
    const AttnShape s = attn_shape(m, l);
    const Arch& c = m->c;
    const int G = s.NH / s.KV, row = s.NH * s.HS, skip = m->d.bias.token;
    const size_t stars = m->d.bias.column == LOGIT_COLUMN ? c.NH : (size_t)bias_rows(c) * c.HS;
    const Host qkv = host_read(act_qkv(m, l), (size_t)rows(m) * m->d.W);
    const Host k_star = host_read(star_k(m, l), stars);
    const Host v_star = host_read(star_v(m, l), (size_t)bias_rows(c) * c.HS);
    const acc *k_at = k_star.empty() ? NULL : k_star.data();
    const acc *v_at = v_star.empty() ? NULL : v_star.data();
    std::vector<double> angles;
    double length;
    if (layer_turns(m, l)) {
        const bool local = is_local(c, l) && m->turns_local;
        angles = rope_angles(c, local ? c.rope_local : c.rope_base, !local, &length);
    }
    Host att((size_t)rows(m) * row), stat((size_t)rows(m) * s.NH * 2);
    std::vector<ref::HeadSums> given((size_t)s.B * s.NH);
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV, g = bg % s.KV;
        std::vector<double> sums(s.T);
        std::vector<char> kept;
        Host A;
        for (int part = 0; part < 2; part++) {   // the prompt, by all heads; what follows it
            const int t0 = part ? evict.prompt : 0, t1 = part ? s.T : evict.prompt;
            for (int h = g * G; h < (g + 1) * G; h++) {
                const ref::Head<Attn, Bias, Pe> plain(qkv.data(), k_at, v_at, b, h, s);
                EvalHead head(plain, stream, evict, edits, angles, l, skip);
                if (part && evict.on && h == g * G) {
                    kept = evict_choose(evict, evict_scores(evict, sums, head));
                }
                if (part && evict.on) { head.kept = &kept; }
                for (int t = t0; t < t1; t++) {
                    const bool counts =
                        evict.policy == EVICT_observed || t >= evict.prompt - snap_window(evict);
                    acc* o = &att[((size_t)b * s.T + t) * row + h * s.HS], st[2];
                    head.weights(t, &A, st);
                    for (int j = 0; j <= s.T; j++) {
                        if (A[j] != 0) { ref::add_times(o, A[j], head.v(j), s.HS); }
                    }
                    for (int j = 0; j < t1 && !part && counts; j++) { sums[j] += std::fabs(A[j]); }
                    const std::vector<double> weights(A.begin(), A.end());
                    given[(size_t)b * s.NH + h].add(weights, t, s.T, skip);
                    memcpy(&stat[(((size_t)b * s.NH + h) * s.T + t) * 2], st, sizeof st);
                }
            }
        }
    }
    host_write(act_att(m, l), att);
    ops::to_device(act_stat(m, l), stat.data(), stat.size() * sizeof(acc));
    const bool column = Bias::column != NO_COLUMN;
    for (auto& sums : given) { seen->push_back(sums.means(s.T - skip, column || skip, column)); }
}

// ----------------------------------------------------------------------------
// 5 a change: what a run does around the stages
struct Change {
    std::vector<Edit> edits;
    Stream stream; Evict evict; Bits bits;
    bool record = false; // a plain run, which collects what means are made of
    std::vector<HeadMetrics> seen;               // where it sees less: of each head and sequence
    std::function<void(int l)> after_layer;

    // is attention computed here? its statistics are then not those of the model's own mask
    bool sees_less() const {
        bool weights = false;
        for (auto& e : edits) { weights = weights || e.place == PLACE_A; }
        return stream.on || evict.on || (weights && !record);
    }
};

// the numbers of a place of layer l, for an edit or for rounding: x as read from `device`
static Rows place_rows(const Model* m, Host* x, const Host* base, int stride, int offset, int width,
                       int group) {
    return { x, base, m->B, m->T, m->d.bias.token, stride, offset, width, group };
}

static void edit_or_record(Change* e, Edit* edit, int l, const Rows& r) {
    if (!e->record) { edit_apply(*edit, l, r); }
    if (e->record && edit->how == EDIT_MEAN) { edit_record(edit, l, r); }
}

// the edit at its place of layer l, with the stage done (q, k, v: before it)
static void change_edit(Change* e, Model* m, Edit* edit, int l) {
    const Sizes& d = m->d;
    const size_t N = rows(m);
    auto work = [&](real* device, const real* base_device, int stride, int offset, int width,
                    int group) {
        Host x = host_read(device, N * stride), base = host_read(base_device, N * stride);
        edit_or_record(e, edit, l,
                       place_rows(m, &x, base_device ? &base : NULL, stride, offset, width, group));
        if (!e->record) { host_write(device, x); }
    };
    switch (edit->place) {
        case PLACE_q:    work(act_qkv(m, l), NULL, d.W, 0, d.NH * d.HS, d.HS); break;
        case PLACE_k:    work(act_qkv(m, l), NULL, d.W, d.NH * d.HS, d.KV * d.HS, d.HS); break;
        case PLACE_v:    work(act_qkv(m, l), NULL, d.W, d.QK, d.KV * d.HS, d.HS); break;
        case PLACE_head: work(act_att(m, l), NULL, d.NH * d.HS, 0, d.NH * d.HS, d.HS); break;
        case PLACE_attn: work(act_x(m, 2 * l + 1), act_x(m, 2 * l), d.C, 0, d.C, 1); break;
        case PLACE_mlp:  work(act_x(m, 2 * l + 2), act_x(m, 2 * l + 1), d.C, 0, d.C, 1); break;
        case PLACE_h:    work(act_x(m, 2 * l + 2), NULL, d.C, 0, d.C, 1); break;
        case PLACE_gate: {
            Host g = host_read(act_gate(m, l), N * d.G);
            Host att = host_read(act_att(m, l), N * d.NH * d.HS);
            for (auto& x : g) { x = sigmoid_(x); }
            edit_or_record(e, edit, l, place_rows(m, &g, NULL, d.G, 0, d.G, gate_width(m)));
            for (size_t i = 0; i < att.size(); i++) {
                att[i] *= g[gate_width(m) == 1 ? i / d.HS : i];
            }
            if (!e->record) { host_write(act_gated(m, l), att); }
            break;
        }
        default: break;                          // A is edited in attention, pe in the weights
    }
}

// keys and values of layer l, rounded before attention reads them
static void change_kv(Change* e, Model* m, int l) {
    const Sizes& d = m->d;
    Host x = host_read(act_qkv(m, l), (size_t)rows(m) * d.W);
    bits_apply(&e->bits, "k", l, place_rows(m, &x, NULL, d.W, d.NH * d.HS, d.KV * d.HS, d.HS),
               e->bits.kv, true);
    bits_apply(&e->bits, "v", l, place_rows(m, &x, NULL, d.W, d.QK, d.KV * d.HS, d.HS), e->bits.kv,
               true);
    if (!e->bits.calibrating) { host_write(act_qkv(m, l), x); }
}

// a stage of layer l, and the change around it
static void change_stage(Change* e, Model* m, const Stage& stage, int l) {
    const bool attention = stage.role == ROLE_ATTENTION;
    auto edit = [&](bool before) {
        for (auto& row : PLACES) {
            const Place place = (Place)(&row - PLACES);
            const bool is_before = place == PLACE_q || place == PLACE_k || place == PLACE_v;
            for (auto& one : e->edits) {
                if (one.place != place || row.stage != stage.role || is_before != before) {
                    continue;
                }
                if (one.layers.has(l)) { change_edit(e, m, &one, l); }
            }
        }
    };
    if (attention) { edit(true); }
    if (attention && e->bits.kv) { change_kv(e, m, l); }
    StageInput input = { NULL, 0 };
    if (e->bits.inputs) { input = stage.reads(m, l); }
    Host was;
    if (input.x) { // for this product alone: without a norm before it, what it reads is the stream
        was = host_read(input.x, (size_t)rows(m) * input.width);
        Host x = was;
        bits_apply(&e->bits, stage.name, l,
                   place_rows(m, &x, NULL, input.width, 0, input.width, input.width),
                   e->bits.inputs, false);
        host_write(input.x, x);
    }
    if (attention && e->sees_less()) {
        eval_attention(m, l, e->stream, e->evict, e->edits, &e->seen);
    } else {
        stage.forward(m, l);
    }
    if (input.x) { host_write(input.x, was); }
    edit(false);
    if (stage.role == ROLE_FFN_OUT && e->after_layer) { e->after_layer(l); }
}

// can a query be at its place in the cache? Not by learned or absolute positions, nor where it was
// turned before a kernel, which cannot be undone
static bool cache_has_positions(const Model* m) {
    return m->d.pe.rotary ? Attn::phi == PHI_NONE : m->d.pe.score_bias;
}

// does the change mean anything for this model and T tokens? dies if not
static void change_check(const Change& e, const Model* m, int T) {
    const Arch& c = m->c;
    const int R = T + m->d.bias.token;
    auto refuse = [](const std::string& what, const std::string& wanted) {
        die(EXIT_USER, what + ": wanted " + wanted);
    };
    if (c.mamba_width) { refuse("eval of a model with Mamba layers", "attention in all layers"); }
    if (c.experts && (e.bits.weights || e.bits.inputs)) {
        refuse("--quant of a mixture of experts", "kv8 or kv4: its experts would not be rounded");
    }
    for (auto& edit : e.edits) {
        const std::string what = "--edit " + edit.text;
        const long last = edit.tokens.last();
        if (edit.tokens.has(0) && last < LONG_MAX) { refuse(what, "tokens from 1 on"); }
        if (edit.layers.beyond(c.L)) { refuse(what, strf("layers 0..%d", c.L - 1)); }
        if (edit.tokens.beyond(T + 1)) { refuse(what, strf("tokens up to %d", T)); }
        const bool of_keys = edit.place == PLACE_k || edit.place == PLACE_v;
        const int heads = of_keys ? c.KV : c.NH,
                  channels = PLACES[edit.place].by_head ? heads : c.C;
        if (edit.channels.beyond(channels)) {
            const char* of = PLACES[edit.place].by_head ? "heads" : "channels";
            refuse(what, strf("%s 0..%d", of, channels - 1));
        }
        if (edit.from > T) { refuse(what, strf("from 1 to %d", T)); }
        const bool branch = edit.place == PLACE_attn || edit.place == PLACE_mlp;
        if (branch && m->d.norm.stream) {
            refuse(what, "a model whose branches add to the stream, not NORM=post");
        }
        if (edit.place == PLACE_gate && !m->d.gate) {
            refuse(what, "a model with a gate (GATE=head or elem)");
        }
        if (edit.place == PLACE_pe && !m->w.wpe) {
            refuse(what, "a model with learned positions (PE=learnable)");
        }
    }
    if (e.stream.on) {
        const std::string what = strf("--stream %d+%d", e.stream.n, e.stream.W);
        if (c.window || c.prefix) { refuse(what, "a model without a window and a prefix"); }
    }
    if (e.evict.on && (e.evict.kept < 1 || e.evict.prompt >= R)) {
        refuse("--evict", "a prompt, and some of it kept");
    }
    if (e.evict.on && c.prefix > e.evict.prompt) {
        refuse("--evict", "a prefix that is part of the prompt");
    }
}
#endif // CHANGE_H
