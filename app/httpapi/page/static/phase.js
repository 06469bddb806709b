// Which of the page's faces belongs to what is known. One answer, worked out anew each
// time, so that nothing can be shown that has ceased to be true.

export function phaseOf(facts, now) {
  const { activity, queue, attempt, result, order } = facts;
  if (facts.missing) return 'missing';
  if (!activity || !queue && !attempt && !result) return 'loading';
  if (result) {
    switch (order?.status ?? result.status) {
      case 'PAID': return 'paid';
      case 'CANCELLED': return 'cancelled';
      case 'NO_CAPACITY': return 'noCapacity';
      case 'DUPLICATE': return result.order_id ? 'order' : 'duplicate';
      default: return 'order';
    }
  }
  if (attempt?.stage === 'queued') return 'reserved';
  if (facts.pressed || attempt?.stage === 'sending') return facts.needSignIn ? 'signIn' : 'sending';
  if (facts.ended || queue?.state === 'ENDED' || now >= Date.parse(activity.closes_at)) return 'ended';
  if (facts.soldOut || queue?.state === 'SOLD_OUT') return facts.needSignIn || !facts.place ? 'soldOut' : 'soldOutMine';
  if (facts.needSignIn) return 'signIn';
  if (!facts.place) return 'join';
  if (queue?.state === 'PAUSED') return 'paused';
  if (attempt?.stage === 'ready') return 'turn';
  if (now < Date.parse(activity.opens_at)) return queue?.state === 'DRAWN' ? 'drawn' : 'joined';
  if (!facts.standing) return 'opening';
  if (facts.standing.released || facts.standing.ahead === 0) return 'next';
  return facts.standing.unlikely ? 'unlikely' : 'waiting';
}

// looksOn: a sale that is sold out is asked about until its document says that this is the
// last word; the document hears of a sell-out a little later than the first who are told.
export function looksOn({ queue }) { return queue?.state !== 'SOLD_OUT' || queue.reopening === true; }

// mayAskAgain: a cancelled order leaves its owner another attempt. Those that this browser
// knows of are counted, all SKUs together; the service counts all of them, each SKU's.
export function mayAskAgain({ activity, cancelled }) {
  return activity?.rebuy_after_cancel === true && cancelled.length < activity.max_attempts * activity.skus.length;
}

// isBefore: the countdown to the opening is shown.
export function isBefore(facts, now) {
  return facts.activity !== null && !facts.missing && now < Date.parse(facts.activity.opens_at) && !facts.ended &&
    facts.queue?.state !== 'ENDED' && !facts.result;
}
