/**
 * Who gets a place: suspects, events whose handler ran out of time before, are tried alone, and never have more than half of a
 * consumer's places. One place is shared in turn. Decisions only; it knows nothing of what has a place.
 */

/** How many of the places suspects may have together. */
export function placesOfSuspects(concurrency: number): number {
  return Math.max(1, Math.floor(concurrency / 2))
}

export interface Places {
  readonly concurrency: number
  /** Under way, suspects too. */
  readonly running: number
  readonly suspectsRunning: number
  /** Whether anything else is in line, whether or not it is due. */
  readonly othersWait: boolean
  readonly suspectsWait: boolean
  /** The last that began was a suspect. */
  readonly wasSuspect: boolean
}

/** What begins next. */
export function nextInPlace(places: Places): 'others' | 'suspect' | 'nothing' {
  const { concurrency, running, suspectsRunning, othersWait, suspectsWait, wasSuspect } = places
  if (running >= concurrency) return 'nothing'
  const mayBegin = suspectsWait && suspectsRunning < placesOfSuspects(concurrency) && !(wasSuspect && othersWait)
  if (mayBegin) return 'suspect'
  return othersWait ? 'others' : 'nothing'
}

/** Splits what is to be done one after the other: suspects, and what is in line behind each, come after all others. */
export function suspectsLast<Each>(
  items: readonly Each[],
  isSuspect: (each: Each) => boolean,
  orderKey: (each: Each) => string,
): { readonly others: readonly Each[]; readonly suspects: readonly Each[] } {
  const behind = new Set<string>()
  const [others, suspects]: [Each[], Each[]] = [[], []]
  for (const each of items) {
    const line = orderKey(each)
    if (isSuspect(each)) behind.add(line)
    if (behind.has(line)) suspects.push(each)
    else others.push(each)
  }
  return { others, suspects }
}
