/** What a schema definition is compiled to: a check that throws on data that does not conform. */
export type Encoding = 'JSON' | 'BINARY'

export type MessageCheck = (data: Buffer, encoding: Encoding) => void
