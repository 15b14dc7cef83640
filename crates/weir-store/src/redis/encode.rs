//! The arguments of the script: MessagePack, as `script/plan.lua` reads it.

use std::borrow::Cow;

use rmp::encode::ByteBuf;
use smallvec::{SmallVec, smallvec};

use super::{
    cross_slot::Undo,
    msgpack::{array_head, int, numbers, text, text_head},
    reply::AnswerFields,
    script::Task,
    store_time::StoreTime,
};
use crate::outage_charges::Due;
use weir_core::{
    algorithm::{Params, UndoRule},
    domain::{Charge, Micros},
    hold::{OnExpiry, Renewal, RequestId, Reservation, ReservationStep, levels_digest},
    plan::{Level, Plan, firsts},
};

/// Marks of a state that can be read and written in about the time of one algorithm step.
const MARKS_OF_A_STEP: u64 = 64;

/// The charge mode for outage charges.
const OUTAGE_CHARGE: i64 = -1;

/// The charge modes of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode<'a> {
    /// Charges according to the plan.
    Decide,
    /// Like [`Decide`](Self::Decide), and returns the changes, so that they can be undone.
    ReportChanges,
    /// Like [`ReportChanges`](Self::ReportChanges), and claims the charges of an earlier attempt: it can no longer undo
    /// them.
    Claim,
    /// Undoes charges.
    Undo(&'a Undo<'a>),
    /// Like [`Decide`](Self::Decide), and serves the renewal.
    Renew(&'a Renewal),
    /// Carries out the reservation's step.
    Reserve(&'a Reservation<'a>),
    /// Like [`Reserve`](Self::Reserve), and claims the reservation of an earlier attempt in the same way.
    ClaimReservation(&'a Reservation<'a>),
    /// Undoes the reservation of this name: deletes it and refunds its units.
    UndoReservation(&'a [u8]),
}

impl Mode<'_> {
    /// Whether the request's id is sent to the script.
    fn sends_id(self) -> bool {
        match self {
            // An undo also deletes the record of the id, so that a retry is charged.
            Self::Decide | Self::ReportChanges | Self::Claim | Self::Undo(_) => true,
            Self::Reserve(_) | Self::ClaimReservation(_) | Self::UndoReservation(_) => true,
            Self::Renew(_) => false,
        }
    }
}

/// The levels of a plan without cost, for background renewals.
#[derive(Clone, Debug)]
pub(crate) struct RenewalPlan {
    keys: SmallVec<[Vec<u8>; 1]>,
    /// The encoded columns before the phases. Phases are encoded at sending time, because calendar phases change.
    columns: Vec<u8>,
    phases: SmallVec<[Phase; 1]>,
    /// The encoded column after the phases.
    state_indexes: Vec<u8>,
    levels: u32,
    work: u32,
}

/// The start of a level's windows.
#[derive(Clone, Debug)]
enum Phase {
    /// A fixed offset of the key, in microseconds.
    Offset(Micros),
    /// The calendar of these parameters.
    Calendar(Params),
}

/// Some levels of a plan, encoded as a part of the array of a script call.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The Redis keys of the anchors.
    pub keys: SmallVec<[Vec<u8>; 1]>,
    /// The encoded values.
    pub body: Vec<u8>,
    pub values: u32,
    pub levels: u32,
    /// The work for the server, in levels of a usual algorithm.
    pub work: u32,
    /// The fields of the answer, except each level's decision.
    pub fields: AnswerFields,
    /// The request has an id, so the answer reports whether it is a repeat.
    pub has_id: bool,
}

/// The id of a part's request.
struct AskedId<'a> {
    id: &'a RequestId,
    /// The digest of the part's levels.
    levels: [u8; 8],
    /// Whether the domain is in shadow mode, so that the request passes in any case.
    is_shadow: bool,
}

impl Part {
    /// Encodes the plan's levels with these indexes: the plan's values, then a column for each field of a level. All
    /// Redis keys start with `prefix`. `records`, the path of the plan's records if that may differ, is the last key.
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
        let request = plan.request.filter(|_| mode.sends_id()).map(|id| AskedId {
            id,
            levels: levels_digest(plan, indexes.iter().copied()),
            is_shadow: plan.is_shadow,
        });
        let has_id = request.is_some();
        let how = charge + 16 * i64::from(plan.dry_run) + 64 * i64::from(has_id);
        head(&mut body, how, plan.max_wait, (keys.len(), levels), request, mode);
        columns(&mut body, plan, indexes, &numbers, None);
        for level in indexes.iter().map(|index| &plan.levels()[*index]) {
            phase(&mut body, level.params(), level.phase(), time);
        }
        state_indexes(&mut body, plan, indexes);
        if let Mode::Undo(undo) = mode {
            undo.levels.iter().for_each(|(change, _)| text(&mut body, &change.before));
            undo.levels.iter().for_each(|(change, _)| text(&mut body, &change.after));
            undo.levels.iter().for_each(|(_, charged)| int(&mut body, *charged));
        }
        let (values, fields) = match mode {
            Mode::Decide => (4 + 6 * levels, AnswerFields::Decisions),
            Mode::ReportChanges | Mode::Claim => (4 + 6 * levels, AnswerFields::Changes),
            Mode::Undo(_) => (5 + 9 * levels, AnswerFields::LeftCharged),
            Mode::Renew(_) => (10 + 6 * levels, AnswerFields::Grant),
            Mode::Reserve(_) | Mode::ClaimReservation(_) | Mode::UndoReservation(_) => {
                (7 + 6 * levels, AnswerFields::Reservation)
            }
        };
        let values = values + if has_id { 5 } else { 0 };
        Self { keys, body: body.into_vec(), values, levels, work: total_work(plan, indexes), fields, has_id }
    }

    /// Encodes an outage charge: `units` of one level, charged as far as they fit.
    pub(crate) fn outage_charge(due: &Due, units: u64, prefix: &[u8], time: &StoreTime) -> Self {
        let mut body = ByteBuf::new();
        // No `max_wait`, one key, one level, on the first key.
        [OUTAGE_CHARGE, -1, 1, 1, 1].into_iter().for_each(|number| int(&mut body, number));
        text(&mut body, due.field());
        text(&mut body, due.rule());
        int(&mut body, units as i64);
        phase(&mut body, due.params(), due.phase(), time);
        int(&mut body, 1);
        let (keys, work) = (smallvec![[prefix, due.anchor()].concat()], work(due.params()));
        Self { keys, body: body.into_vec(), values: 10, levels: 1, work, fields: AnswerFields::Charged, has_id: false }
    }

    /// Encodes a background renewal.
    pub(crate) fn renewal(plan: &RenewalPlan, renewal: &Renewal, time: &StoreTime) -> Self {
        let (mut body, levels) = (ByteBuf::new(), plan.levels);
        head(&mut body, 0, None, (plan.keys.len(), levels), None, Mode::Renew(renewal));
        body.as_mut_vec().extend_from_slice(&plan.columns);
        for start in &plan.phases {
            match start {
                Phase::Offset(offset) => int(&mut body, *offset),
                Phase::Calendar(params) => phase(&mut body, params, 0, time),
            }
        }
        body.as_mut_vec().extend_from_slice(&plan.state_indexes);
        let (keys, work, fields) = (plan.keys.clone(), plan.work, AnswerFields::Grant);
        Self { keys, body: body.into_vec(), values: 10 + 6 * levels, levels, work, fields, has_id: false }
    }
}

impl RenewalPlan {
    /// Encodes all levels of a plan, whose Redis keys start with `prefix`.
    pub(crate) fn new(plan: &Plan<'_>, prefix: &[u8]) -> Self {
        let indexes: SmallVec<[usize; 4]> = (0..plan.levels().len()).collect();
        let (keys, numbers) = keys(plan, &indexes, prefix);
        let (mut before, mut behind) = (ByteBuf::new(), ByteBuf::new());
        columns(&mut before, plan, &indexes, &numbers, Some(0));
        state_indexes(&mut behind, plan, &indexes);
        let phases = plan.levels().iter().map(|level| match level.params() {
            params if params.edges(|| 0).is_some() => Phase::Calendar(params.clone()),
            _ => Phase::Offset(level.phase()),
        });
        let (levels, work) = (indexes.len() as u32, total_work(plan, &indexes));
        let (columns, phases, state_indexes) = (before.into_vec(), phases.collect(), behind.into_vec());
        Self { keys, columns, phases, state_indexes, levels, work }
    }

    /// Returns the key of the first anchor.
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first().map(Vec::as_slice).unwrap_or_default()
    }
}

/// Returns the keys of the levels' anchors, and each level's position among them, from 1.
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

/// Encodes the plan's values: the charge mode, as `script/plan.lua` lists it, and the numbers of keys and levels.
fn head(
    body: &mut ByteBuf,
    how: i64,
    max_wait: Option<Micros>,
    (keys, levels): (usize, u32),
    request: Option<AskedId<'_>>,
    mode: Mode<'_>,
) {
    let charge = match mode {
        Mode::Decide => how,
        Mode::ReportChanges => 2 + how,
        Mode::Claim => 256 + 2 + how,
        Mode::Undo(undo) => 4 + how + 256 * i64::from(undo.is_whole),
        Mode::Renew(_) => 8 + how,
        Mode::Reserve(_) | Mode::UndoReservation(_) => 32 + how,
        Mode::ClaimReservation(_) => 256 + 32 + how,
    };
    for number in [charge, max_wait.unwrap_or(-1), keys as i64, i64::from(levels)] {
        int(body, number);
    }
    if let Some(AskedId { id, levels, is_shadow }) = request {
        [&*id.name, &id.fingerprint].iter().for_each(|part| text(body, part));
        int(body, id.window);
        text(body, &levels);
        int(body, i64::from(is_shadow));
    }
    match mode {
        Mode::Decide | Mode::ReportChanges | Mode::Claim => {}
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
                ReservationStep::Reserve { ttl, on_expiry: OnExpiry::Keep } => (1, ttl),
                ReservationStep::Reserve { ttl, on_expiry: OnExpiry::Release } => (2, ttl),
                ReservationStep::Commit { actual } => (3, actual as i64),
                ReservationStep::Cancel => (3, 0),
                ReservationStep::Extend { ttl } => (4, ttl),
            };
            [task, value].into_iter().for_each(|number| int(body, number));
        }
        Mode::UndoReservation(name) => {
            text(body, name);
            [5, 0].into_iter().for_each(|number| int(body, number));
        }
    }
}

/// Encodes a column for each field of a level except the last two. `cost` replaces the plan's costs.
fn columns(body: &mut ByteBuf, plan: &Plan<'_>, indexes: &[usize], keys: &[i64], cost: Option<i64>) {
    let levels = || indexes.iter().map(|index| &plan.levels()[*index]);
    keys.iter().for_each(|number| int(body, *number));
    levels().for_each(|level| field(body, level));
    levels().for_each(|level| text(body, &rule_of(level)));
    levels().for_each(|level| int(body, cost.unwrap_or(level.cost)));
}

/// Encodes the start of a level's windows: the key's offset, or the edges of the calendar windows around now.
fn phase(body: &mut ByteBuf, params: &Params, offset: Micros, time: &StoreTime) {
    let Some(edges) = params.edges(|| time.now()) else { return int(body, offset) };
    array_head(body, edges.len());
    edges.into_iter().for_each(|edge| int(body, edge));
}

/// Encodes the column of the levels' state indexes.
fn state_indexes(body: &mut ByteBuf, plan: &Plan<'_>, indexes: &[usize]) {
    let state_indexes = firsts(indexes.iter().map(|index| plan.state_of(*index)));
    state_indexes.iter().for_each(|place| int(body, *place as i64 + 1));
}

/// Returns the work of levels. One that can be leased counts a step more: with leases it takes about twice the time.
fn total_work(plan: &Plan<'_>, indexes: &[usize]) -> u32 {
    let levels = indexes.iter().map(|index| &plan.levels()[*index]);
    levels.map(|level| work(level.params()) + u32::from(level.limit.leased_for().is_some())).sum()
}

/// Returns the work of a level: a step, and reading and writing the marks of its state.
pub(crate) fn work(params: &Params) -> u32 {
    1 + (params.marks_max() / MARKS_OF_A_STEP) as u32
}

/// Encodes the hash field of a level's state: the key beyond the anchor, and the limit's ident.
fn field(body: &mut ByteBuf, level: &Level<'_>) {
    let rest = &level.path()[level.anchor_path().len()..];
    let ident = level.limit.ident();
    text_head(body, rest.len() + ident.len());
    body.as_mut_vec().extend_from_slice(rest);
    body.as_mut_vec().extend_from_slice(ident);
}

/// Returns the encoded rule of a level: the parameters of its limit that the script needs.
pub(crate) fn rule_of<'l>(level: &'l Level<'_>) -> Cow<'l, [u8]> {
    let encoded = || encoded_rule(level);
    if level.scaled.is_some() { Cow::Owned(encoded().into()) } else { Cow::Borrowed(level.limit.encoded(encoded)) }
}

/// Encodes the algorithm, its flags, its parameters, and when a charge can be undone: a period, 0 while it lasts, -1
/// never, -2 by its mark, -3 within its window. Under a request's factor, the parameters without it follow.
fn encoded_rule(level: &Level<'_>) -> Box<[u8]> {
    let (limit, params, mut body) = (level.limit, level.params(), ByteBuf::new());
    let flags = [limit.shadow, params.charges_denied(), params.as_concurrency().is_some()];
    let flags = flags.iter().rev().fold(0, |flags, flag| 2 * flags + i64::from(*flag));
    array_head(&mut body, 4 + usize::from(level.scaled.is_some()));
    int(&mut body, params.number() as i64 + 1);
    int(&mut body, flags);
    numbers(&mut body, &params.lua_params());
    let undo_rule = match params.undo_rule() {
        UndoRule::WhileItLasts => 0,
        UndoRule::WithinPeriod(period) => period,
        UndoRule::Never => -1,
        UndoRule::ByMark => -2,
        UndoRule::WithinWindow => -3,
    };
    int(&mut body, undo_rule);
    level.scaled.iter().for_each(|_| numbers(&mut body, &level.base().lua_params()));
    body.into_vec().into()
}

/// Least TTL of a key in milliseconds when decisions use a clock other than the server's, because Redis expires keys in
/// real time.
const LEAST_TTL_OF_VIRTUAL_TIME_MILLIS: i64 = 600_000;

/// Encodes the start of a call with `values` values after those common to all calls. `now`: a virtual time.
pub(crate) fn call_head(now: Option<Micros>, task: Task, values: usize) -> Vec<u8> {
    let mut body = ByteBuf::new();
    array_head(&mut body, 3 + values);
    let least_ttl_millis = now.map_or(0, |_| LEAST_TTL_OF_VIRTUAL_TIME_MILLIS);
    for number in [now.unwrap_or(-1), least_ttl_millis, task as i64] {
        int(&mut body, number);
    }
    body.into_vec()
}

/// Encodes a call that deletes a key's states in a hash; see `reset` in `script/tasks.lua`.
pub(crate) fn reset_call(now: Option<Micros>, field_prefix: &[u8], subtree: bool, cursor: &[u8]) -> Vec<u8> {
    let mut body = ByteBuf::from_vec(call_head(now, Task::Reset, 3));
    text(&mut body, field_prefix);
    int(&mut body, i64::from(subtree));
    text(&mut body, cursor);
    body.into_vec()
}

/// Encodes a call that changes a document; see `change_document` in `script/tasks.lua`.
pub(crate) fn documents_call(texts: &[&str]) -> Vec<u8> {
    let mut body = ByteBuf::from_vec(call_head(None, Task::ChangeDocument, texts.len()));
    texts.iter().for_each(|part| text(&mut body, part.as_bytes()));
    body.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::{domain::Key, plan::Limit, plan::Origin, testing::bucket};

    #[test]
    fn a_level_that_can_be_leased_counts_twice() {
        let key = Key::new("", &["a"]).unwrap();
        for (ttl, work) in [(None, 1), (Some(250_000), 2)] {
            let limit = Limit::new(Origin::Policy, None, "*", 0, false, bucket(9, 9).0).with_lease(ttl);
            let plan = Plan::new(smallvec![Level::new(&key, 1, 1, &limit, 1)], Charge::AllOrNothing, None);
            assert_eq!(total_work(&plan, &[0]), work);
        }
    }
}
