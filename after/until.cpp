/*
after/until.cpp -- --until: ends a run by a number of its evaluations, where two in a row say so.
*/
#include "../core/config.h"
#include "../core/measure.h"
#include "../run/train.h"

// Which number of an evaluation is to be below or above what.
struct Until {
    std::string number;
    bool below = false;
    double limit = 0;
};

// numbers of the line of an evaluation, from sink_1 on from 0 to 1
static const char* const EVAL_NUMBERS = " val_loss probe_loss mass sink_1 sink_* alpha_1 ";

// Reads --until; dies if it is none.
static Until until_of(const std::string& text) {
    Until u;
    const size_t sign = std::min(text.find_first_of("<>"), text.size());
    u.number = text.substr(0, sign);
    u.below = text[sign] == '<';
    const std::string limit = sign < text.size() ? text.substr(sign + 1) : "";
    const bool share = is_one_of(" sink_1 sink_* alpha_1 ", u.number);
    const bool known = is_one_of(EVAL_NUMBERS, u.number) && parse_double(limit, &u.limit);
    const bool reached = known && (!share || (u.limit >= 0 && u.limit <= 1));
    require(reached, "--until '" + text + "'",
            strf("NAME<NUMBER or NAME>NUMBER of%s(a sink and alpha_1 from 0 to 1)", EVAL_NUMBERS));
    return u;
}

// Returns the number of an evaluation that --until compares.
static double eval_number(const std::string& name, double val_loss, const Metrics& r) {
    if (name == "val_loss") { return val_loss; }
    if (name == "probe_loss") { return r.loss; }
    if (name == "sink_1") { return r.sinks[0].first; }
    if (name == "sink_*") { return r.sinks[0].star; }
    return name == "mass" ? mass_mean(r) : mean(alpha1_means(r));
}

// Counts the evaluations in a row where --until holds; the second one ends the run.
static void until_count(Run* r, const Until& u, long step, double val_loss,
                        const Metrics& metrics) {
    const double x = eval_number(u.number, val_loss, metrics);
    const bool holds = dist::any(u.below ? x < u.limit : x > u.limit);
    r->met = holds ? r->met + 1 : 0;
    if (r->met < 2) { return; }
    printf("until  %s: the second evaluation in a row, %s is %.4g\n", r->f.until.c_str(),
           u.number.c_str(), x);
    JsonObject o;
    o.text("event", "until");
    o.count("step", step);
    o.text("until", r->f.until);
    o.number("value", x);
    log_line(&r->log, o);
}

// Takes the count of a run that goes on by the same --until.
static void until_resume(Run* r, const Json& state) {
    if (state["flags"]["until"].string != r->f.until) { return; }
    r->met = json_count(state, "met", 0, r->f.out + ": state.json");
    if (r->met < 2) { return; }
    printf("note   --until '%s' has ended this run, which continues with another one\n",
           r->f.until.c_str());
}

void until_begin(Run* r) {
    const std::string& text = r->f.until;
    const Until u = until_of(text);
    require(u.number != "sink_*" || has_extra_key(&r->m), "--until '" + text + "'",
            "a model with an extra key or a sink token: BIAS=k, ..");
    r->more.evaluated = [=](Run* r, long step, double val_loss, const Metrics& metrics) {
        until_count(r, u, step, val_loss, metrics);
    };
    r->more.resumed = until_resume;
}
