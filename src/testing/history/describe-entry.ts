/**
 * An entry of a history as a line of text, for explanations: who, what, and the few words that matter.
 */
import type { HistoryEntry } from './entry.ts'

/** An entry and the line of the history it stands in, counted from 1. */
export interface Evidence {
  readonly line: number
  readonly entry: HistoryEntry
}

/** `  12  broker   log      video a v2 (e2)` */
export function describeEvidence({ line, entry }: Evidence): string {
  return `${String(line).padStart(6)}  ${(entry.source ?? 'main').padEnd(8)} ${entry.op.padEnd(7)} ${detailsOf(entry)}`
}

function detailsOf(entry: HistoryEntry): string {
  switch (entry.op) {
    case 'invoke':
      return `${entry.request} by call ${entry.call}${given(' asks ', entry.payload)}`
    case 'answer':
      return `${entry.request} to call ${entry.call}: ${entry.outcome}${entry.isReplay === true ? ' again' : ''}${given(' ', entry.response)}`
    case 'effect':
      return `of ${entry.request}${given(' by call ', entry.call)}${given(' asked ', entry.payload)}${given(' gave ', entry.response)}`
    case 'commit':
      return eventText(entry)
    case 'log':
      return `${eventText(entry)}${given(' in ', entry.topic)}${entry.isVoid === true ? ' as a void' : ''}`
    case 'deliver':
      return `${eventText(entry)} to ${entry.consumer}`
    case 'apply':
      return `${eventText(entry)} at ${readerText(entry)}${given(', which is then at v', entry.after)}`
    case 'excuse':
      return `event ${entry.event}${given(' at ', entry.consumer)}: ${entry.why}${entry.isDead === true ? ', not settled' : ''}`
    case 'follow':
      return `${readerText(entry)} reads ${entry.types.join(', ')}${given('; projects ', entry.projects?.join(', '))}`
    case 'observe':
      return `${entry.aggregate} at ${readerText(entry)} is v${entry.version}`
    case 'read':
      return `${entry.aggregate}${given(' with a token of v', entry.atLeast)} got v${entry.served} from the ${entry.by}`
    case 'state':
      return `${entry.aggregate} at ${entry.consumer ?? 'the owner'} is ${entry.value ?? 'not there'}`
    case 'rest':
      return restText(entry)
  }
}

function restText({ left = {}, tookMs, limitMs }: Extract<HistoryEntry, { op: 'rest' }>): string {
  const rows = Object.entries(left).filter(([, count]) => count > 0)
  const what = rows.length === 0 ? 'nothing is left' : `left: ${rows.map(([name, count]) => `${count} ${name}`).join(', ')}`
  return `${what}${given(', after ms ', tookMs)}${given(' of ', limitMs)}`
}

/** A consumer in one of its lives; the first goes without saying. */
export function readerText({ consumer, generation = 1 }: { readonly consumer: string; readonly generation?: number }): string {
  return generation === 1 ? consumer : `${consumer} (generation ${generation})`
}

function eventText({ aggregate, version, event }: { aggregate?: string; version?: number; event: string }): string {
  return aggregate === undefined || version === undefined ? `event ${event}` : `${aggregate} v${version} (${event})`
}

function given(before: string, value: string | number | undefined): string {
  return value === undefined ? '' : `${before}${value}`
}
