import { expect, test } from 'vitest'
import { answeredParts } from '../../../../test/kafka/answered-parts.ts'
import { grouping } from './group-requests.ts'

const memberIdRequired = 79

test('the id that a first join is answered with is told before it is joined with', async () => {
  const happened: string[] = []
  const answerTo = (api: string, args: readonly unknown[]): unknown => {
    if (api === 'findCoordinatorV4') return { coordinators: [{ errorCode: 0, nodeId: 1, host: 'nowhere', port: 1 }] }
    const memberId = args[3] as string
    happened.push(`joined as '${memberId}'`)
    if (memberId === '') return { errorCode: memberIdRequired, memberId: 'm1', members: [] }
    return { errorCode: 0, memberId, generationId: 1, leader: 'm2', members: [] }
  }
  const joined = await grouping(answeredParts(answerTo)).joinGroup({
    group: 'ledger',
    topic: 'orders',
    memberId: '',
    instanceId: undefined,
    sessionTimeoutMs: 1_000,
    rebalanceTimeoutMs: 1_000,
    edition: 0,
    onMemberId: (memberId) => void happened.push(`told '${memberId}'`),
  })
  expect(joined).toEqual({ memberId: 'm1', generation: 1, members: undefined })
  expect(happened).toEqual([`joined as ''`, `told 'm1'`, `joined as 'm1'`])
})
