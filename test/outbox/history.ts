/**
 * What an outbox promises, as a check of what happened: nothing lost, nothing made up, the first occurrence of each version
 * in order, and nothing left behind. Duplicates are allowed.
 */
export interface Fact {
  readonly aggregate: string
  readonly version: number
  readonly id: string
}

export interface History {
  /** What the database committed. */
  readonly committed: readonly Fact[]
  /** What reached the broker, in its order. */
  readonly arrived: readonly Fact[]
  /** Dispatch rows that are still there at the end. */
  readonly left: number
  /** Events that an operator removed without a trace. */
  readonly dropped?: ReadonlySet<string>
}

/** The violations, each as a line that says which: `lost a 3`, `ghost a 4`, `inverted a 2 after a 3`, `stuck: 4 rows`. */
export function violations({ committed, arrived, left, dropped = new Set() }: History): string[] {
  const found: string[] = []
  const known = new Map<string, string>()
  for (const { aggregate, version, id } of committed) {
    const name = `${aggregate} ${version}`
    if (known.has(name)) found.push(`twice ${name}`)
    known.set(name, id)
  }
  const seen = new Set<string>()
  const highest = new Map<string, number>()
  for (const { aggregate, version, id } of arrived) {
    const name = `${aggregate} ${version}`
    if (known.get(name) !== id) found.push(`ghost ${name}`)
    if (seen.has(name)) continue
    seen.add(name)
    const last = highest.get(aggregate) ?? 0
    if (version < last) found.push(`inverted ${name} after ${aggregate} ${last}`)
    highest.set(aggregate, Math.max(last, version))
  }
  for (const { aggregate, version, id } of committed) {
    const name = `${aggregate} ${version}`
    if (!seen.has(name) && !dropped.has(id)) found.push(`lost ${name}`)
  }
  if (left > 0) found.push(`stuck: ${left} rows`)
  return found
}

/** How many messages were more than the first of their version. */
export function duplicates(arrived: readonly Fact[]): number {
  return arrived.length - new Set(arrived.map(({ id }) => id)).size
}

/** A message as the broker got it. */
export function factOf(attributes: Readonly<Record<string, string>>): Fact {
  return {
    aggregate: attributes['aggregate_id'] ?? '',
    version: Number(attributes['version']),
    id: attributes['event_id'] ?? '',
  }
}
