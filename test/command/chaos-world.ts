/**
 * Worlds for the command pipeline: who asks for what, at which server, and what breaks when a call has come to which step.
 *
 * A world is plain data that fast-check chooses and makes smaller. The worlds in `everyStrike` hold each fault at each step once.
 */
import fc from 'fast-check'
import { places, type Place } from './pipeline-places.ts'

/** Commands by what they keep for repeats, and by how they treat others who write the same account. */
export const commandNames = ['Deposit', 'KeptDeposit', 'ComparedDeposit'] as const
export type CommandName = (typeof commandNames)[number]

export interface Input {
  readonly command: CommandName
  readonly account: string
  readonly amount: number
}

/** An input is known by its amount. The last one is rejected while the account has less than that. */
export const inputs: readonly Input[] = [
  { command: 'KeptDeposit', account: 'a', amount: 1 },
  { command: 'Deposit', account: 'a', amount: 2 },
  { command: 'ComparedDeposit', account: 'b', amount: 3 },
  { command: 'KeptDeposit', account: 'c', amount: 4 },
  { command: 'Deposit', account: 'c', amount: -7 },
]

export const everywhereFaults = [
  'the server is killed',
  'Redis is killed',
  'Redis is frozen',
  'Redis is flushed',
  'Redis fails over to an empty one',
] as const
export const commitFaults = ['a COMMIT is lost', 'an answer to COMMIT is lost'] as const
export type Fault = (typeof everywhereFaults)[number] | (typeof commitFaults)[number]

/**
 * What breaks while a call is at a place: the first of the client's calls, from this one on, that comes there. What happens to
 * Redis lasts until something else does.
 */
export interface Strike {
  readonly at: Place
  readonly fault: Fault
}

export interface Ask {
  readonly principal: 'ann' | 'bob'
  readonly request: number
  /** Another input than the request's own: its id is used again for something else. */
  readonly reuse: number | undefined
  readonly server: number
  /** How often it is sent at most, while nobody knows its outcome. */
  readonly tries: number
  /** How many attempts lose a race for the account. */
  readonly lostRaces: number
  readonly strike: Strike | undefined
}

/** Clients ask all at once, each for one thing after the other. */
export interface World {
  readonly clients: readonly (readonly Ask[])[]
}

export const serverCount = 2

export function inputOf({ request, reuse }: Pick<Ask, 'request' | 'reuse'>): Input {
  return inputs[(reuse ?? request) % inputs.length] as Input
}

const strike: fc.Arbitrary<Strike> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ at: fc.constantFrom(...places), fault: fc.constant('the server is killed' as const) }) },
  { weight: 4, arbitrary: fc.record({ at: fc.constantFrom(...places), fault: fc.constantFrom(...everywhereFaults) }) },
  { weight: 2, arbitrary: fc.record({ at: fc.constant('committing' as const), fault: fc.constantFrom(...commitFaults) }) },
)

/** Few ids and few inputs, so that clients meet. */
const ask: fc.Arbitrary<Ask> = fc.record({
  principal: fc.constantFrom('ann' as const, 'bob' as const),
  request: fc.nat({ max: inputs.length - 1 }),
  reuse: fc.oneof({ weight: 5, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: fc.nat({ max: inputs.length - 1 }) }),
  server: fc.nat({ max: serverCount - 1 }),
  tries: fc.integer({ min: 1, max: 3 }),
  lostRaces: fc.nat({ max: 2 }),
  strike: fc.oneof(fc.constant(undefined), strike),
})

export const world: fc.Arbitrary<World> = fc.record({
  clients: fc.array(fc.array(ask, { minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 4 }),
})

/** A request that is struck, and asked again at the other server. */
function strickenWorld(struck: Strike, lostRaces: number): World {
  const isRejected = struck.at === 'releasing' || struck.at === 'released'
  const first: Ask = {
    principal: 'ann',
    request: isRejected ? inputs.length - 1 : 0,
    reuse: undefined,
    server: 0,
    tries: 1,
    lostRaces,
    strike: struck,
  }
  return { clients: [[first, { ...first, server: 1, strike: undefined }]] }
}

/** Those that tell most come first, so that a mistake is found soon. */
const strikes: readonly Strike[] = [
  ...commitFaults.map((fault): Strike => ({ at: 'committing', fault })),
  ...everywhereFaults.flatMap((fault) => places.toReversed().map((at): Strike => ({ at, fault }))),
]

/** The worlds that are always played, by the name of the strike. */
export const everyStrike: ReadonlyMap<string, World> = new Map(
  strikes.map((each, index) => [strikeName(each), strickenWorld(each, (index + 1) % 2)]),
)

export function strikeName({ at, fault }: Strike): string {
  return `${fault} at "${at}"`
}
