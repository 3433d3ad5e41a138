/**
 * Cuts a PostgreSQL connection's bytes into the messages of its protocol, so that a fault can hit a chosen one.
 *
 * What comes out is exactly what went in, only in other pieces, however the network had split or joined them. For
 * plain connections only: a client that insists on TLS cannot be read.
 */
import type { Direction, Framer } from './fault-proxy.ts'

/** Splits one direction of one connection; give it to `startFaultProxy` as `frames`. */
export function postgresFrames(direction: Direction): Framer {
  let rest: Buffer = Buffer.alloc(0)
  let isOpening = true
  return (chunk) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const messages: Buffer[] = []
    for (;;) {
      const length = isOpening ? openingLength(rest, direction) : typedLength(rest)
      if (length === undefined || length > rest.length) return messages
      const message = rest.subarray(0, length)
      rest = rest.subarray(length)
      messages.push(message)
      isOpening &&= isNegotiation(message, direction)
    }
  }
}

/** Whether the client's message asks for a commit. Drivers that prepare it once and then only execute it escape this. */
export function isCommitRequest(message: Buffer): boolean {
  return isStatement(/^\s*(commit|end)\b/i)(message)
}

/** Whether the server's message says that a commit took effect. */
export function isCommitReply(message: Buffer): boolean {
  return message[0] === 'C'.charCodeAt(0) && text(message, 5) === 'COMMIT'
}

/** Makes a matcher for statements whose text fits the pattern, in the simple or the extended protocol. */
export function isStatement(pattern: RegExp): (message: Buffer) => boolean {
  return (message) => {
    const statement = statementText(message)
    return statement !== undefined && pattern.test(statement)
  }
}

function statementText(message: Buffer): string | undefined {
  const type = String.fromCharCode(message[0] ?? 0)
  if (type === 'Q') return text(message, 5)
  // Parse has the name of the statement before its text.
  return type === 'P' ? text(message, message.indexOf(0, 5) + 1) : undefined
}

function text(message: Buffer, start: number): string {
  const end = message.indexOf(0, start)
  return message.toString('utf8', start, end === -1 ? undefined : end)
}

/** One byte of type, then four of length that count themselves. */
function typedLength(bytes: Buffer): number | undefined {
  return bytes.length < 5 ? undefined : 1 + bytes.readUInt32BE(1)
}

/** The client's first packets have no type; the server's answer to a request for TLS is a single letter. */
function openingLength(bytes: Buffer, direction: Direction): number | undefined {
  if (direction === 'toServer') return bytes.length < 4 ? undefined : bytes.readUInt32BE(0)
  return isTlsAnswer(bytes) ? 1 : typedLength(bytes)
}

const tlsRequest = 80_877_103
const gssRequest = 80_877_104

/** Whether the opening goes on after this message: the real start-up packet is still to come. */
function isNegotiation(message: Buffer, direction: Direction): boolean {
  if (direction === 'toClient') return message.length === 1
  return message.length === 8 && [tlsRequest, gssRequest].includes(message.readUInt32BE(4))
}

/** No other opening of the server starts with these letters. */
function isTlsAnswer(bytes: Buffer): boolean {
  return ['N', 'S', 'G'].includes(String.fromCharCode(bytes[0] ?? 0))
}
