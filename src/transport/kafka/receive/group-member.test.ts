import { expect, onTestFinished, test } from 'vitest'
import { seededRandom } from '../../../core/service/random.ts'
import { createFakeClock, type FakeClock } from '../../../testing/kit/fake-clock.ts'
import { GroupMember } from './group-member.ts'
import type { GroupMemberId, JoinGroupRequest, KafkaClient, SyncGroupRequest } from '../client/kafka-client.ts'
import { kafkaError } from '../client/errors.ts'

/** A coordinator for one member, who never hands partitions out. */
class Coordinator {
  readonly joins: JoinGroupRequest[] = []
  partitions = 2
  handedOut: number | undefined = 2
  readonly left: string[] = []
  join: (request: JoinGroupRequest) => Promise<void> = () => Promise.resolve()
  beat: () => Promise<void> = () => Promise.resolve()

  client(): KafkaClient {
    const client: Partial<KafkaClient> = {
      describeTopic: (name) =>
        Promise.resolve({ name, partitions: Array.from({ length: this.partitions }, () => ({ leader: 1, replicas: 1 })) }),
      joinGroup: async (request) => {
        this.joins.push(request)
        await this.join(request)
        return { memberId: `m${this.joins.length}`, generation: this.joins.length, members: undefined }
      },
      syncGroup: () => Promise.resolve({ partitions: [0], handedOut: this.handedOut }),
      heartbeat: () => this.beat(),
      leaveGroup: ({ memberId }) => {
        this.left.push(memberId)
        return Promise.resolve()
      },
    }
    return client as KafkaClient
  }
}

const times = { heartbeatMs: 100, sessionTimeoutMs: 1_000, rebalanceTimeoutMs: 5_000, metadataMaxAgeMs: 10_000 }

interface Running {
  readonly member: GroupMember
  readonly clock: FakeClock
  readonly ended: Promise<void>
  readonly errors: readonly Error[]
  readonly happened: readonly string[]
}

function run(coordinator: Coordinator, instanceId?: string, different: Partial<KafkaClient> = {}): Running {
  const clock = createFakeClock()
  const errors: Error[] = []
  const happened: string[] = []
  const member = new GroupMember({
    ...times,
    client: { ...coordinator.client(), ...different },
    group: 'ledger',
    topic: 'orders',
    instanceId,
    clock,
    random: seededRandom(1),
    onAssigned: () => void happened.push('assigned'),
    onRevoked: () => {
      happened.push('revoked')
      return Promise.resolve()
    },
    onOver: () => void happened.push('over'),
    onRecreated: () => void happened.push('recreated'),
    onError: (error) => void errors.push(error),
  })
  const ended = member.run()
  onTestFinished(async () => {
    member.stop()
    await clock.advance(10_000)
    await ended
  })
  return { member, clock, ended, errors, happened }
}

test.each(['heartbeat', 'commit'])(
  'who is thrown out by another under its name (%s) is told, and waits for a session before it takes the name back',
  async (what) => {
    const coordinator = new Coordinator()
    const { member, clock, errors, happened } = run(coordinator, 'pod-1')
    const taken = kafkaError('FENCED_INSTANCE_ID', what)
    await clock.advance(0)
    if (what === 'commit') member.fenced(taken)
    else coordinator.beat = () => Promise.reject(taken)
    await clock.advance(100)
    expect(happened).toEqual(['assigned', 'over'])
    expect(errors).toEqual([taken])
    expect(taken.message).toContain('each needs its own')
    coordinator.beat = () => Promise.resolve()
    await clock.advance(850)
    expect(coordinator.joins.length).toBe(1)
    await clock.advance(150)
    expect(coordinator.joins.map(({ memberId }) => memberId)).toEqual(['', ''])
  },
)

test('who was fenced because its session is over joins again at once', async () => {
  const coordinator = new Coordinator()
  const { clock, errors } = run(coordinator)
  await clock.advance(0)
  coordinator.beat = () => Promise.reject(kafkaError('UNKNOWN_MEMBER_ID', 'heartbeat'))
  await clock.advance(100)
  expect(coordinator.joins.length).toBe(2)
  expect(errors).toEqual([])
})

test('a heartbeat that nobody answers does not keep a member that is to stop', async () => {
  const coordinator = new Coordinator()
  const { member, clock, ended, happened } = run(coordinator)
  await clock.advance(0)
  const { promise: beating, resolve: beats } = Promise.withResolvers<void>()
  coordinator.beat = () => {
    beats()
    return new Promise(() => {})
  }
  await clock.advance(100)
  await beating
  member.stop()
  await ended
  expect(happened).toEqual(['assigned', 'over'])
  expect(coordinator.left).toEqual(['m1'])
})

test('who finds more partitions than were handed out lets go and joins again with a changed subscription', async () => {
  const coordinator = new Coordinator()
  const { clock, happened } = run(coordinator)
  await clock.advance(30_000)
  expect(coordinator.joins.length).toBe(1)
  coordinator.partitions = 3
  await clock.advance(10_200)
  expect(happened).toEqual(['assigned', 'revoked', 'over', 'assigned'])
  expect(coordinator.joins.map(({ memberId, edition }) => [memberId, edition])).toEqual([
    ['', 0],
    ['m1', 1],
  ])
  // As long as fewer are handed out than there are, it does not settle for that.
  await clock.advance(10_200)
  expect(coordinator.joins.map(({ edition }) => edition)).toEqual([0, 1, 2])
  coordinator.handedOut = 3
  await clock.advance(10_200)
  await clock.advance(60_000)
  expect(coordinator.joins.map(({ edition }) => edition)).toEqual([0, 1, 2, 3])
})

test('where nobody says how many partitions were handed out, those count that were there at the join', async () => {
  const coordinator = new Coordinator()
  coordinator.handedOut = undefined
  const { clock } = run(coordinator)
  await clock.advance(30_000)
  expect(coordinator.joins.length).toBe(1)
  coordinator.partitions = 3
  await clock.advance(10_200)
  expect(coordinator.joins.length).toBe(2)
  await clock.advance(60_000)
  expect(coordinator.joins.length).toBe(2)
})

test('who hands out partitions hands out those of every topic that has members, and none of one that is gone', async () => {
  const coordinator = new Coordinator()
  const client = coordinator.client()
  const handed: SyncGroupRequest['assignments'][] = []
  const reads = (memberId: string, topic: string): GroupMemberId => ({ memberId, instanceId: undefined, topics: [topic] })
  const members = [reads('m1', 'orders'), reads('m2', 'bills'), reads('m3', 'bills'), reads('m4', 'gone')]
  const { clock, errors } = run(coordinator, undefined, {
    describeTopic: async (topic) => {
      if (topic === 'gone') throw kafkaError('UNKNOWN_TOPIC_OR_PARTITION', 'topic gone')
      coordinator.partitions = topic === 'bills' ? 3 : 2
      return client.describeTopic(topic)
    },
    joinGroup: async (request) => ({ ...(await client.joinGroup(request)), members }),
    syncGroup: (request) => {
      handed.push(request.assignments)
      return client.syncGroup(request)
    },
  })
  await clock.advance(0)
  expect(handed).toEqual([
    new Map([
      ['m1', new Map([['orders', [0, 1]]])],
      ['m2', new Map([['bills', [0, 1]]])],
      ['m3', new Map([['bills', [2]]])],
      ['m4', new Map()],
    ]),
  ])
  expect(errors.map(({ message }) => message)).toEqual([expect.stringContaining('the partitions of gone cannot be handed out')])
})

test('a member that has joined leaves no timer behind when it stops', async () => {
  const { member, clock, ended } = run(new Coordinator())
  await clock.advance(0)
  member.stop()
  await ended
  expect(clock.sleepers()).toBe(0)
})

test('joins that failed in an outage leave nothing behind that a stop would have to wait for', async () => {
  const coordinator = new Coordinator()
  coordinator.join = () => Promise.reject(new Error('down'))
  const { member, clock, ended, errors } = run(coordinator)
  await clock.advance(600_000)
  expect(errors.length).toBeGreaterThan(100)
  member.stop()
  await ended
  expect(clock.sleepers()).toBe(0)
})

test('a join that is under way at a stop has a moment to end, so that the group can be left', async () => {
  const coordinator = new Coordinator()
  const { promise: joining, resolve: joins } = Promise.withResolvers<void>()
  coordinator.join = () => joining
  const { member, clock, ended, happened } = run(coordinator)
  await clock.advance(0)
  member.stop()
  await clock.advance(1_000)
  joins()
  await ended
  expect(happened).toEqual([])
  expect(coordinator.left).toEqual(['m1'])
  expect(clock.sleepers()).toBe(0)
})

test('who is to stop during its first join leaves the group under the id that it was told to join with', async () => {
  const coordinator = new Coordinator()
  coordinator.join = ({ onMemberId }) => {
    onMemberId('told')
    return new Promise(() => {})
  }
  const { member, clock, ended } = run(coordinator)
  await clock.advance(0)
  member.stop()
  await clock.advance(2_000)
  await ended
  expect(coordinator.left).toEqual(['told'])
})
