//! The script's arguments: MessagePack, as `script/plan.lua` reads it.

use std::borrow::Cow;

use rmp::encode::{ByteBuf, write_array_len, write_f64, write_sint, write_str_len};
use smallvec::{SmallVec, smallvec};

use super::{cross_slot::Undo, reply::Tells, script::Task, store_time::StoreTime};
use crate::outage_charges::Due;
use weir_core::{
    algorithm::{Params, TakesBack},
    domain::{Charge, Micros},
    hold::{OnExpiry, Renewal, RequestId, Reservation, Step},
    plan::{Level, Plan, firsts},
};

/// The greatest whole number of a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Marks that a state is read and written with in about the time of a step.
const MARKS_OF_A_STEP: u64 = 64;

/// How the script charges what was admitted without the store.
const AFTERWARDS: i64 = -1;

/// How the script charges a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode<'a> {
    /// As the plan says.
    Decide,
    /// As the plan says; the answer tells what was written, so that it can be taken back.
    Tell,
    /// As [`Tell`](Self::Tell), and what an attempt of the same request before was charged is not taken back any more.
    Claim,
    /// Takes back what was charged.
    Undo(&'a Undo<'a>),
    /// As the plan says, and serves the renewal.
    Renew(&'a Renewal),
    /// Carries out what is asked of the reservation.
    Reserve(&'a Reservation<'a>),
    /// The same, and what an attempt of the same request before has reserved is not taken back any more.
    ClaimReservation(&'a Reservation<'a>),
    /// Forgets the reservation of this name, and gives back what it holds.
    TakeBack(&'a [u8]),
}

impl Mode<'_> {
    /// Whether the script is told the request's id.
    fn tells_id(self) -> bool {
        match self {
            // What is taken back is forgotten, so that it is charged when it is repeated.
            Self::Decide | Self::Tell | Self::Claim | Self::Undo(_) => true,
            Self::Reserve(_) | Self::ClaimReservation(_) | Self::TakeBack(_) => true,
            Self::Renew(_) => false,
        }
    }
}

/// The levels of a plan without cost, for renewals that come with no request.
#[derive(Clone, Debug)]
pub(crate) struct RenewalPlan {
    keys: SmallVec<[Vec<u8>; 1]>,
    /// The columns before the phases, which differ from one moment to another where a calendar tells them.
    columns: Vec<u8>,
    phases: SmallVec<[Phase; 1]>,
    /// The column behind them.
    places: Vec<u8>,
    levels: u32,
    work: u32,
}

/// Where the windows of a level begin.
#[derive(Clone, Debug)]
enum Phase {
    /// So much later than others.
    Offset(Micros),
    /// As the calendar of these parameters has them.
    Calendar(Params),
}

/// Some levels of a plan, as the script takes them: a part of the array that a call is.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The keys of the anchors.
    pub keys: SmallVec<[Vec<u8>; 1]>,
    /// The encoded values.
    pub body: Vec<u8>,
    /// How many values.
    pub values: u32,
    /// How many levels.
    pub levels: u32,
    /// The work that it makes for the server, in levels of a usual algorithm.
    pub work: u32,
    /// The fields of the answer for each level, besides its decision.
    pub tells: Tells,
    /// The request has an id, so the answer tells whether it is a repeated one.
    pub has_id: bool,
}

impl Part {
    /// The levels of a plan with these indexes, whose states are under `prefix`: what concerns the plan, then a column for
    /// each field of a level. `records`: the key of its records, where that may be another one; the last key has them.
    pub(crate) fn new(
        plan: &Plan<'_>,
        indexes: &[usize],
        records: Option<&[u8]>,
        prefix: &[u8],
        time: &StoreTime,
        mode: Mode<'_>,
    ) -> Self {
        let (mut keys, numbers) = keys(plan, indexes, prefix);
        let records = records.map(|path| [prefix, path].concat());
        keys.extend(records.filter(|records| keys.last() != Some(records)));
        let (levels, mut body) = (indexes.len() as u32, ByteBuf::new());
        let charge = match plan.charge {
            Charge::AllOrNothing => 0,
            Charge::Independent => 1,
            Charge::OverLimitOnly => 129,
        };
        let request = plan.request.filter(|_| mode.tells_id());
        let how = charge + 16 * i64::from(plan.dry_run) + 64 * i64::from(request.is_some());
        head(&mut body, how, plan.max_wait, (keys.len(), levels), request, mode);
        columns(&mut body, plan, indexes, &numbers, None);
        for level in indexes.iter().map(|index| &plan.levels()[*index]) {
            phase(&mut body, level.params(), level.phase(), time);
        }
        places(&mut body, plan, indexes);
        if let Mode::Undo(undo) = mode {
            undo.levels.iter().for_each(|(change, _)| text(&mut body, &change.before));
            undo.levels.iter().for_each(|(change, _)| text(&mut body, &change.after));
            undo.levels.iter().for_each(|(_, charged)| int(&mut body, *charged));
        }
        let (values, tells) = match mode {
            Mode::Decide => (4 + 6 * levels, Tells::Decisions),
            Mode::Tell | Mode::Claim => (4 + 6 * levels, Tells::Changes),
            Mode::Undo(_) => (5 + 9 * levels, Tells::LeftCharged),
            Mode::Renew(_) => (10 + 6 * levels, Tells::Grant),
            Mode::Reserve(_) | Mode::ClaimReservation(_) | Mode::TakeBack(_) => (7 + 6 * levels, Tells::Reservation),
        };
        let (values, has_id) = (values + if request.is_some() { 3 } else { 0 }, request.is_some());
        Self { keys, body: body.into_vec(), values, levels, work: total_work(plan, indexes), tells, has_id }
    }

    /// So many units of one level, to be charged afterwards as far as they fit.
    pub(crate) fn afterwards(due: &Due, units: u64, prefix: &[u8], time: &StoreTime) -> Self {
        let mut body = ByteBuf::new();
        // No wait is asked for; one key, one level, which is on the first key.
        [AFTERWARDS, -1, 1, 1, 1].into_iter().for_each(|number| int(&mut body, number));
        text(&mut body, due.field());
        text(&mut body, due.rule());
        int(&mut body, units as i64);
        phase(&mut body, due.params(), due.phase(), time);
        int(&mut body, 1);
        let (keys, work) = (smallvec![[prefix, due.anchor()].concat()], work(due.params()));
        Self { keys, body: body.into_vec(), values: 10, levels: 1, work, tells: Tells::Charged, has_id: false }
    }

    /// A renewal that comes with no request.
    pub(crate) fn renewal(held: &RenewalPlan, renewal: &Renewal, time: &StoreTime) -> Self {
        let (mut body, levels) = (ByteBuf::new(), held.levels);
        head(&mut body, 0, None, (held.keys.len(), levels), None, Mode::Renew(renewal));
        body.as_mut_vec().extend_from_slice(&held.columns);
        for held in &held.phases {
            match held {
                Phase::Offset(offset) => int(&mut body, *offset),
                Phase::Calendar(params) => phase(&mut body, params, 0, time),
            }
        }
        body.as_mut_vec().extend_from_slice(&held.places);
        let (keys, work) = (held.keys.clone(), held.work);
        Self { keys, body: body.into_vec(), values: 10 + 6 * levels, levels, work, tells: Tells::Grant, has_id: false }
    }
}

impl RenewalPlan {
    /// All levels of a plan, whose states are under `prefix`.
    pub(crate) fn new(plan: &Plan<'_>, prefix: &[u8]) -> Self {
        let indexes: SmallVec<[usize; 4]> = (0..plan.levels().len()).collect();
        let (keys, numbers) = keys(plan, &indexes, prefix);
        let (mut before, mut behind) = (ByteBuf::new(), ByteBuf::new());
        columns(&mut before, plan, &indexes, &numbers, Some(0));
        places(&mut behind, plan, &indexes);
        let phases = plan.levels().iter().map(|level| match level.params() {
            params if params.edges(|| 0).is_some() => Phase::Calendar(params.clone()),
            _ => Phase::Offset(level.phase()),
        });
        let (levels, work) = (indexes.len() as u32, total_work(plan, &indexes));
        let (columns, phases, places) = (before.into_vec(), phases.collect(), behind.into_vec());
        Self { keys, columns, phases, places, levels, work }
    }

    /// The key of the first anchor.
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first().map(Vec::as_slice).unwrap_or_default()
    }
}

/// The keys of the levels' anchors, and the number of each level's among them, from 1.
fn keys(plan: &Plan<'_>, indexes: &[usize], prefix: &[u8]) -> (SmallVec<[Vec<u8>; 1]>, SmallVec<[i64; 4]>) {
    let firsts_of_anchors = firsts(indexes.iter().map(|index| plan.levels()[*index].anchor_path()));
    let (mut keys, mut numbers) = (SmallVec::new(), SmallVec::<[i64; 4]>::new());
    for (position, first) in firsts_of_anchors.iter().enumerate() {
        if position == *first {
            keys.push([prefix, plan.levels()[indexes[position]].anchor_path()].concat());
            numbers.push(keys.len() as i64);
        } else {
            numbers.push(numbers[*first]);
        }
    }
    (keys, numbers)
}

/// What concerns the plan: how it is charged, as `script/plan.lua` lists it, and how many keys and levels follow.
fn head(
    body: &mut ByteBuf,
    how: i64,
    max_wait: Option<Micros>,
    (keys, levels): (usize, u32),
    request: Option<&RequestId>,
    mode: Mode<'_>,
) {
    let charge = match mode {
        Mode::Decide => how,
        Mode::Tell => 2 + how,
        Mode::Claim => 256 + 2 + how,
        Mode::Undo(_) => 4 + how,
        Mode::Renew(_) => 8 + how,
        Mode::Reserve(_) | Mode::TakeBack(_) => 32 + how,
        Mode::ClaimReservation(_) => 256 + 32 + how,
    };
    for number in [charge, max_wait.unwrap_or(-1), keys as i64, i64::from(levels)] {
        int(body, number);
    }
    if let Some(request) = request {
        text(body, &request.name);
        text(body, &request.fingerprint);
        int(body, request.window);
    }
    match mode {
        Mode::Decide | Mode::Tell | Mode::Claim => {}
        Mode::Undo(undo) => int(body, undo.charged_at),
        Mode::Renew(renewal) => {
            let Renewal { id, sequence, spent, kept, want, ttl } = *renewal;
            text(body, &[id.owner.to_be_bytes(), id.number.to_be_bytes()].concat());
            [sequence, spent, kept, want].into_iter().for_each(|number| int(body, number as i64));
            int(body, ttl);
        }
        Mode::Reserve(reservation) | Mode::ClaimReservation(reservation) => {
            text(body, reservation.name);
            let (task, value) = match reservation.step {
                Step::Reserve { ttl, on_expiry: OnExpiry::Keep } => (1, ttl),
                Step::Reserve { ttl, on_expiry: OnExpiry::Release } => (2, ttl),
                Step::Commit { actual } => (3, actual as i64),
                Step::Cancel => (3, 0),
                Step::Extend { ttl } => (4, ttl),
            };
            [task, value].into_iter().for_each(|number| int(body, number));
        }
        Mode::TakeBack(name) => {
            text(body, name);
            [5, 0].into_iter().for_each(|number| int(body, number));
        }
    }
}

/// A column for each field of a level but the last two. `cost`: of each level, in place of what the plan asks for.
fn columns(body: &mut ByteBuf, plan: &Plan<'_>, indexes: &[usize], keys: &[i64], cost: Option<i64>) {
    let levels = || indexes.iter().map(|index| &plan.levels()[*index]);
    keys.iter().for_each(|number| int(body, *number));
    levels().for_each(|level| field(body, level));
    levels().for_each(|level| text(body, &rule_of(level)));
    levels().for_each(|level| int(body, cost.unwrap_or(level.cost)));
}

/// Where the windows of a level begin: the key's offset, or the edges of those windows around the present that a calendar has.
fn phase(body: &mut ByteBuf, params: &Params, offset: Micros, time: &StoreTime) {
    let Some(edges) = params.edges(|| time.now()) else { return int(body, offset) };
    array_head(body, edges.len());
    edges.into_iter().for_each(|edge| int(body, edge));
}

/// The column of the levels' states.
fn places(body: &mut ByteBuf, plan: &Plan<'_>, indexes: &[usize]) {
    let places = firsts(indexes.iter().map(|index| plan.state_of(*index)));
    places.iter().for_each(|place| int(body, *place as i64 + 1));
}

fn total_work(plan: &Plan<'_>, indexes: &[usize]) -> u32 {
    indexes.iter().map(|index| work(plan.levels()[*index].params())).sum()
}

/// The work of a level: a step, and reading and writing what its state may hold.
pub(crate) fn work(params: &Params) -> u32 {
    1 + (params.marks_max() / MARKS_OF_A_STEP) as u32
}

/// The field of a level's state: the rest of its key, and what tells its limit from others.
fn field(body: &mut ByteBuf, level: &Level<'_>) {
    let rest = &level.path()[level.anchor_path().len()..];
    let ident = level.limit.ident();
    text_head(body, rest.len() + ident.len());
    body.as_mut_vec().extend_from_slice(rest);
    body.as_mut_vec().extend_from_slice(ident);
}

/// What the script must know of a level's limit.
pub(crate) fn rule_of<'l>(level: &'l Level<'_>) -> Cow<'l, [u8]> {
    let encoded = || encoded_rule(level);
    if level.scaled.is_some() { Cow::Owned(encoded().into()) } else { Cow::Borrowed(level.limit.encoded(encoded)) }
}

/// The algorithm, its flags, its parameters, and when a charge may be taken back: within a period, 0 while it lasts, -1
/// never, -2 by its mark, -3 within its window; under a request's factor also the parameters without it.
fn encoded_rule(level: &Level<'_>) -> Box<[u8]> {
    let (limit, params, mut body) = (level.limit, level.params(), ByteBuf::new());
    let flags = [limit.shadow, params.charges_denied(), params.as_concurrency().is_some()];
    let flags = flags.iter().rev().fold(0, |flags, flag| 2 * flags + i64::from(*flag));
    array_head(&mut body, 4 + usize::from(level.scaled.is_some()));
    int(&mut body, params.number() as i64 + 1);
    int(&mut body, flags);
    numbers(&mut body, &params.lua_params());
    let takes_back = match params.takes_back() {
        TakesBack::WhileItLasts => 0,
        TakesBack::WithinPeriod(period) => period,
        TakesBack::Never => -1,
        TakesBack::ByMark => -2,
        TakesBack::WithinWindow => -3,
    };
    int(&mut body, takes_back);
    level.scaled.iter().for_each(|_| numbers(&mut body, &limit.params.lua_params()));
    body.into_vec().into()
}

/// Begins a call that holds so many values after those that every call begins with.
pub(crate) fn call_head(now: Option<Micros>, least_ttl_millis: i64, task: Task, values: usize) -> Vec<u8> {
    let mut body = ByteBuf::new();
    array_head(&mut body, 3 + values);
    for number in [now.unwrap_or(-1), least_ttl_millis, task as i64] {
        int(&mut body, number);
    }
    body.into_vec()
}

/// A call that forgets what a hash holds of a key; see `reset` in `script/tasks.lua`.
pub(crate) fn reset_call(now: Option<Micros>, rest: &[u8], subtree: bool, cursor: &[u8]) -> Vec<u8> {
    let mut body = ByteBuf::from_vec(call_head(now, 0, Task::Reset, 3));
    text(&mut body, rest);
    int(&mut body, i64::from(subtree));
    text(&mut body, cursor);
    body.into_vec()
}

/// A call that tells what is held of these levels of one anchor; see `holds` in `script/tasks.lua`.
pub(crate) fn holds_call(now: Option<Micros>, plan: &Plan<'_>, indexes: &[usize]) -> Vec<u8> {
    let mut body = ByteBuf::from_vec(call_head(now, 0, Task::Holds, indexes.len()));
    indexes.iter().for_each(|index| field(&mut body, &plan.levels()[*index]));
    body.into_vec()
}

/// A call that changes a document whose log is this; see `change_document` in `script/tasks.lua`.
pub(crate) fn documents_call(log: &[u8], texts: &[&str]) -> Vec<u8> {
    let mut body = ByteBuf::from_vec(call_head(None, 0, Task::ChangeDocument, 1 + texts.len()));
    text(&mut body, log);
    texts.iter().for_each(|part| text(&mut body, part.as_bytes()));
    body.into_vec()
}

// A buffer in memory takes everything, so none of these can fail.

fn int(body: &mut ByteBuf, value: i64) {
    let _ = write_sint(body, value);
}

fn number(body: &mut ByteBuf, value: f64) {
    if value.fract() == 0.0 && value.abs() < EXACT {
        int(body, value as i64);
    } else {
        let _ = write_f64(body, value);
    }
}

fn numbers(body: &mut ByteBuf, words: &[f64]) {
    array_head(body, words.len());
    words.iter().for_each(|word| number(body, *word));
}

fn array_head(body: &mut ByteBuf, length: usize) {
    let _ = write_array_len(body, length as u32);
}

fn text(body: &mut ByteBuf, bytes: &[u8]) {
    text_head(body, bytes.len());
    body.as_mut_vec().extend_from_slice(bytes);
}

/// Lua's texts are bytes.
fn text_head(body: &mut ByteBuf, length: usize) {
    let _ = write_str_len(body, length as u32);
}
